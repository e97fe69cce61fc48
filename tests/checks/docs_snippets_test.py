#!/usr/bin/env python3
"""Tests of docs_snippets.py: what is wrong in a page is found."""
import pathlib
import tempfile
import unittest

import docs_snippets

PROGRAM = "#include <cstdio>\n\nint main() {\n  std::puts(\"one\");\n}\n"


class Snippets(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "docs/how-to").mkdir(parents=True)
        (self.root / "docs/appendix").mkdir()
        (self.root / "README.md").write_text("# Readme\n")
        self.build = self.root / "build"
        (self.build / "samples").mkdir(parents=True)
        self.program("tool", "case $1 in --help) echo '  --width N  --quiet';; *) echo a; echo b 12;; esac")
        (self.root / "samples").mkdir()
        (self.root / "tests").mkdir()
        (self.root / "meson_options.txt").write_text("option('cuda', type: 'feature')\n")

    def program(self, name, text):
        path = self.build / "samples" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def page(self, text, name="docs/how-to/a.md"):
        (self.root / name).write_text(text)

    def run_page(self, text):
        self.page(text)
        return docs_snippets.run(self.root, self.build, self.build / "samples/tool")

    def test_blocks_without_a_known_kind_are_errors(self):
        for head in ("```", "```rust", "```cpp", "```sh", "<!-- run -->\n```cpp", "<!-- compiled -->\n```cpp"):
            self.page(f"{head}\nx\n```\n")
            self.assertEqual(len(docs_snippets.check(self.root)), 1, head)
        for head in ("<!-- compile -->\n```cpp", "<!-- run -->\n```sh", "```text", "```console"):
            self.page(f"{head}\nx\n```\n")
            self.assertEqual(docs_snippets.check(self.root), [], head)
        self.page("text:\n\n    an indented block\n")
        self.assertEqual(len(docs_snippets.check(self.root)), 1)

    def test_the_appendix_is_left_alone(self):
        self.page("```\nx\n```\n", "docs/appendix/a.md")
        self.assertEqual(docs_snippets.check(self.root), [])

    def test_quotations_and_json_are_compared(self):
        (self.root / "tests/x.cpp").write_text("  // MARK\nint x;\n  // MARK\n")
        for text, problems in (("int x;\n", 0), ("int y;\n", 1)):
            self.page(f"<!-- quote tests/x.cpp MARK -->\n```cpp\n{text}```\n")
            self.assertEqual(len(docs_snippets.check(self.root)), problems)
            self.page(f"<!-- quote tests/x.cpp -->\n```cpp\n  // MARK\n{text}  // MARK\n```\n")
            self.assertEqual(len(docs_snippets.check(self.root)), problems)
        self.page("```json\n{\"a\": 1}\n{a}\n```\n")
        self.assertEqual(len(docs_snippets.check(self.root)), 1)

    def test_programs_keep_their_lines_and_end_well(self):
        block = docs_snippets.blocks("p.md", f"```cpp\n{PROGRAM}```\n")[0]
        self.assertTrue(block.is_program())
        source = docs_snippets.programs_source([block])
        self.assertIn("#include <cstdio>\n", source.split("namespace")[0])
        self.assertIn("#line 2 \"p.md\"\n\n\nint run() {\n  std::puts(\"one\");\n  return 0;\n}\n", source)

    def test_programs_to_build_are_compiled_and_not_run(self):
        text = f"<!-- build -->\n```cpp\n{PROGRAM}```\n"
        self.assertTrue(docs_snippets.blocks("p.md", text)[0].is_program())
        self.program("tool", "exit 1")
        self.assertEqual(self.run_page(text), [])
        self.assertEqual(len(self.run_page(f"```cpp\n{PROGRAM}```\n")), 1)
        self.page("<!-- build -->\n```cpp\nint x;\n```\n")
        self.assertEqual(len(docs_snippets.check(self.root)), 1)

    def test_outputs_are_compared(self):
        shown = docs_snippets.printed_as
        self.assertTrue(shown("a\nb …\n", "a\nb 12\n") and shown("...\nb 12\n", "x\ny\nb 12\n") and shown("a\n...\n", "a\n"))
        self.assertFalse(shown("a\n", "a\nb\n") or shown("b …\n", "a 12\n") or shown("...\na\n", "a\nb\n"))
        self.assertEqual(self.run_page("```console\n$ tool\na\nb …\n```\n"), [])
        self.assertEqual(len(self.run_page("```console\n$ tool\na\nc\n```\n")), 1)
        self.assertEqual(len(self.run_page(f"```cpp\n{PROGRAM}```\n<!-- output -->\n```text\nc\n```\n")), 1)

    def test_numbers_may_differ_by_a_share(self):
        shown = docs_snippets.printed_as
        for text, share, same in (("a 100 in 0.5 s", 0, True), ("a 95 in 0.48 s", 0, False), ("a 95 in 0.48 s", 0.1, True),
                                  ("a 80 in 0.5 s", 0.1, False), ("b 100 in 0.5 s", 0.1, False)):
            self.assertEqual(shown("...\na 100 in 0.5 s\n", f"x 7\n{text}\n", share), same, text)
        self.assertTrue(shown("a 100 in … s\n", "a 99 in 3 s\n", 0.1))
        self.assertEqual(len(self.run_page("<!-- run -->\n```sh\ntool\n```\n<!-- output 10% -->\n```text\na\nb 20\n```\n")), 1)

    def test_a_page_compiles_its_programs(self):
        text = f"<!-- file a.cpp -->\n```cpp\n{PROGRAM}```\n<!-- run -->\n```sh\nc++ -I. a.cpp -o a -lx\n./a\n```\n"
        shown = "<!-- output -->\n```text\na\nb 12\n```\n"
        self.assertEqual(self.run_page(text + shown), [])
        self.assertEqual(len(self.run_page(text.replace("c++ -I. a.cpp", "c++ -I. b.cpp"))), 1)

    def test_what_is_followed_is_read(self):
        for line, problems in (("c++ a.cpp -o a\n./a", 0), ("./a", 1), ("build/samples/tool --height 3", 1), ("unzip a.zip", 0)):
            shown = "<!-- output -->\n```text\nwhat was not run\n```\n"
            self.assertEqual(len(self.run_page(f"<!-- follow data -->\n```sh\n{line}\n```\n{shown}")), problems, line)

    def test_commands_are_run_or_read(self):
        for line, problems in (("tool > x", 0), ("exit 3", 1), ("missing-program", 1)):
            self.assertEqual(len(self.run_page(f"<!-- run -->\n```sh\n{line}\n```\n")), problems, line)
        for line, problems in (("A=1 tool --width 3 --quiet", 0), ("build/samples/tool --height 3", 1), ("build/samples/none", 1),
                               ("meson setup b -Dcuda=enabled", 0), ("meson setup b -Dcudda=enabled", 1), ("./no/script.sh", 1)):
            self.assertEqual(len(self.run_page(f"<!-- parse -->\n```sh\n{line}\n```\n")), problems, line)


if __name__ == "__main__":
    unittest.main()
