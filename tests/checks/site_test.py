#!/usr/bin/env python3
"""The copies of headers and pages that docs/doxygen.py makes for Doxygen: site_test.py SOURCE_FOLDER."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop())
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "docs"))
import doxygen  # noqa: E402

HEADER = '''// A header's purpose,
// in two lines.
#pragma once

namespace sotto {

// A section of it.

// A class with a `member_` <= 1.
class C {
 public:
  // A function.
  int f() const {
    // A reason.
    return 1;  // another
  }
  int a = 0;  // one
              // and the same
  int b = 0;
  int c = 0, d = 0;  // both
  // A pair.
  std::pair<int, int> e, f;
  int g() const { return 1; }  // one
};

}  // namespace sotto
'''
COPY = '''/*! \\file
A header's purpose,
in two lines.
*/

namespace sotto {

// A section of it.

/// A class with a `member_` \\<= 1.
class C {
 public:
  /// A function.
  int f() const {
    // A reason.
    return 1;  // another
  }
  int a = 0;  ///< one
              ///< and the same
  int b = 0;
  int c = 0, /**< both */ d = 0;  ///< both
  /// A pair.
  std::pair<int, int> e, f;///< A pair.
  int g() const { return 1; }  ///< one
};

}  // namespace sotto
'''


class Site(unittest.TestCase):
    def test_comments_of_declarations_become_doxygens_for_each_name_and_others_stay(self):
        self.assertEqual(COPY, doxygen.with_doxygen_comments(HEADER))

    def test_what_its_name_explains_needs_no_comment(self):
        with tempfile.TemporaryDirectory() as folder:
            header = pathlib.Path(folder) / "c.h"
            header.write_text(doxygen.with_doxygen_comments("// Each has `name`, and step().\n#pragma once\nstruct C {\n  C();\n  int f() const;\n"
                              "  int two_words() const;\n  void g(int);\n  void h() override;\n  int name, other;\n"
                              "  // One of them.\n  void k(int);\n  void k(int, int);\n  void step();\n};\n"))
            warning = lambda line, what: f"{header}:{line + 1}: warning: {what} is not documented."
            member = lambda line, what, kind="function": warning(line, f"Member {what} ({kind}) of struct sotto::C")
            needed = [warning(3, "Compound sotto::C"), member(6, "two_words() const"), member(7, "g(int)"),
                      member(9, "other", "variable")]
            others = [member(4, "C()"), member(5, "f() const"), member(8, "h() override"), member(9, "name", "variable"),
                      member(12, "k(int, int)"), member(13, "step()"), member(6, "operator==(const C &) const")]
            self.assertEqual(needed[1:], [one for one in needed + others if doxygen.needs_comment(one)])

    def pages(self, readme):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        (root / "README.md").write_text(readme)
        (root / "CONTRIBUTING.md").write_text("# Page\n\n## Two words\n\n## Two words\n")
        pages = doxygen.Pages(root)
        pages.write(root / "copies")
        return pages, (root / "copies/README.md").read_text()

    def test_links_lead_to_the_headings_of_pages(self):
        pages, copy = self.pages("# Top\n[a](CONTRIBUTING.md)\n[b\nc](CONTRIBUTING.md#two-words-1)\n[d](#top)\n`x`\n")
        self.assertEqual([], pages.problems)
        self.assertEqual("# Top {#page_README}\n[a](@ref page_CONTRIBUTING)\n"
                         "[b c](@ref page_CONTRIBUTING_two-words-1)\n[d](@ref page_README)\n`x`\n", copy)

    def test_code_of_pages_stays_what_it_is(self):
        _, copy = self.pages("# Top\n```sh\n# no heading\n[a](b)\n```\n")
        self.assertEqual("# Top {#page_README}\n```sh\n# no heading\n[a](b)\n```\n", copy)

    def test_of_a_light_and_a_dark_picture_the_light_one_is_shown(self):
        _, copy = self.pages("# Top\n<picture><source srcset=\"a/d.png\"><img src=\"a/l.png\" alt=\"A page\"></picture>\n")
        self.assertEqual("# Top {#page_README}\n![A page](l.png)\n", copy)

    def test_a_link_that_leads_nowhere_is_found(self):
        for target in ("none.md", "CONTRIBUTING.md#none", "#none", "none.svg"):
            pages, _ = self.pages(f"# Top\n[a]({target})\n")
            self.assertEqual([f"README.md: [a]({target}) leads nowhere"], pages.problems)


if __name__ == "__main__":
    unittest.main()
