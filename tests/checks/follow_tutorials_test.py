#!/usr/bin/env python3
"""Tests of follow_tutorials.py: what a reader could not do is found."""
import gzip
import pathlib
import tempfile
import unittest

import docs_snippets
import follow_tutorials

PROGRAM = "#include <cstdio>\n\nint main() {\n  std::puts(\"one\");\n}\n"


class Tutorials(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.clone, self.data = pathlib.Path(folder.name) / "clone", pathlib.Path(folder.name) / "data"
        self.weights = pathlib.Path(folder.name) / "weights"
        self.clone.mkdir()
        (self.data / "tables").mkdir(parents=True)

    def follow(self, text):
        page = self.clone / "page.md"
        page.write_text(text)
        return follow_tutorials.follow_page(follow_tutorials.Follower(self.clone, self.data, self.weights), page, "page.md")

    def test_programs_are_written_compiled_and_run(self):
        text = f"<!-- file a.cpp -->\n```cpp\n{PROGRAM}```\n<!-- run -->\n```sh\nc++ a.cpp -o a\n./a\n```\n"
        for shown, problems in (("one", 0), ("two", 1)):
            self.assertEqual(len(self.follow(f"{text}<!-- output -->\n```text\n{shown}\n```\n")), problems)
        self.assertEqual(len(self.follow(text.replace("a.cpp -o", "b.cpp -o"))), 1)

    def test_outputs_are_what_a_terminal_shows(self):
        text = "<!-- follow -->\n```sh\necho a 9\necho b >&2\n```\n<!-- output 20% -->\n```text\na {}\nb\n```\n"
        self.assertEqual(self.follow(text.format(10)), [])
        self.assertEqual(len(self.follow(text.format(20))), 1)
        for shown, problems in (("a", 0), ("b", 1)):
            self.assertEqual(len(self.follow(f"```console\n$ echo a\n{shown}\n```\n")), problems)

    def test_blocks_that_need_data_are_skipped_without(self):
        text = "<!-- fetch t -->\n```sh\nexit 1\n```\n<!-- follow t -->\n```sh\ncat t\n```\n<!-- output -->\n```text\nx\n```\n"
        self.assertEqual(self.follow(text), [])
        (self.data / "tables/t.gz").write_bytes(gzip.compress(b"y\n"))
        self.assertEqual(len(self.follow(text)), 1)
        self.assertEqual(self.follow(text.replace("\nx\n", "\ny\n")), [])

    def test_weights_are_found_where_they_are_kept(self):
        text = "<!-- follow net -->\n```sh\ncat net/w\n```\n<!-- output -->\n```text\nx\n```\n"
        self.assertEqual(self.follow(text), [])
        (self.weights / "net").mkdir(parents=True)
        (self.weights / "net/w").write_text("y\n")
        self.assertEqual(len(self.follow(text)), 1)

    def test_what_nobody_can_follow_is_an_error(self):
        for block in ("<!-- parse -->\n```sh\nls\n```", "<!-- compile -->\n```cpp\nint x;\n```", f"```cpp\n{PROGRAM}```",
                      "<!-- run -->\n```sh\nexit 3\n```"):
            self.assertEqual(len(self.follow(block + "\n")), 1, block)

    def test_the_tutorials_of_the_tree_have_no_such_blocks(self):
        for page in sorted((pathlib.Path(__file__).parents[2] / "docs/tutorials").glob("*.md")):
            for block in docs_snippets.blocks(page.name, page.read_text(encoding="utf-8")):
                self.assertNotIn(block.mark, follow_tutorials.UNFOLLOWED.get(block.language, ()), block.where())


if __name__ == "__main__":
    unittest.main()
