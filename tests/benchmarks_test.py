#!/usr/bin/env python3
"""What the scripts in tests/benchmarks make of measurements; nothing is measured here.

Usage: benchmarks_test.py [unittest options]
"""
import pathlib
import sys
import tempfile
import unittest
import xml.dom.minidom

sys.path.insert(0, str(pathlib.Path(__file__).parent / "benchmarks"))

import compare_peers
import pages
import products


class Pages(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.page = pathlib.Path(folder.name) / "page.md"

    def test_only_what_stands_between_the_marks_is_replaced(self):
        self.page.write_text("a\n<!-- x -->\nold\n<!-- end of x -->\nb\n")
        for _ in range(2):
            pages.write_between(self.page, "x", "new")
            self.assertEqual(self.page.read_text(), "a\n<!-- x -->\nnew\n\n<!-- end of x -->\nb\n")

    def test_pages_without_the_marks_are_left_as_they_are(self):
        for text in ("a\n", "<!-- x -->\n", "<!-- end of x -->\n<!-- x -->\n", "<!-- x -->\n<!-- x -->\n<!-- end of x -->\n"):
            self.page.write_text(text)
            with self.assertRaises(SystemExit):
                pages.write_between(self.page, "x", "new")
            self.assertEqual(self.page.read_text(), text)

    def test_the_pages_of_the_project_have_the_marks(self):
        text = (pathlib.Path(__file__).parents[1] / "docs/performance.md").read_text()
        for name in ("steps", "products"):
            self.page.write_text(text)
            pages.write_between(self.page, name, "new")

    def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios(self):
        axis = pages.LogAxis([3, 700], 0, 300)
        self.assertEqual(axis.ticks(), [1, 10, 100, 1000])
        self.assertEqual([round(axis.at(tick), 6) for tick in axis.ticks()], [0, 100, 200, 300])
        octaves = pages.LogAxis([16, 1024], 60, 0, base=2)
        self.assertEqual((octaves.ticks()[0], octaves.ticks()[-1]), (16, 1024))
        self.assertEqual([round(octaves.at(size), 6) for size in (16, 128, 1024)], [60, 30, 0])
        self.assertEqual(pages.LogAxis([10, 10], 0, 1).ticks(), [10, 100])


class Tables(unittest.TestCase):
    def test_steps_have_a_row_without_peers_too(self):
        case = {"model": "mnist", "batch": 64, "floor_ms": 1.0, "ms": {"ordinary": 2.0, "private": 3.0},
                "ratios": [1.5, 1.25, None, None, None]}
        ceilings = {"threads": 2, "unit": "AVX2", "fma_gflops": 100.0, "triad_gbytes": 10.0}
        rows = compare_peers.table(ceilings, [case]).splitlines()
        self.assertEqual(rows[-2], "| mnist | 64 | 1.000 | 2.000 | 3.000 | - | - | 1.50 | 1.25 | - | - | - |")
        xml.dom.minidom.parseString(compare_peers.plot([case]))

    def test_products_have_the_median_of_their_rounds(self):
        lines = [{"what": "gemm", "gflops": g, "fraction": f} for g, f in ((90, 0.7), (120, 0.9), (100, 0.79))]
        lines += [{"what": "conv", "gflops": 10, "fraction": None}]
        self.assertEqual(products.table(lines).splitlines()[2:],
                         ["| gemm | 100.0 | 0.79 | yes |", "| conv | 10.0 | - |  |"])


if __name__ == "__main__":
    unittest.main()
