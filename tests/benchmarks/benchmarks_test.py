#!/usr/bin/env python3
"""Tests the computations of the scripts in tests/benchmarks; this test measures nothing.

Usage: benchmarks_test.py [unittest options]
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "scripts")]

import compare_builds
import drawing
import gpu_results
import pages
import processor
import products
import reading
import scaling
import step_results


def growing(power, sizes=(1, 2, 4, 8, 16, 32), factor=3.0):
    """Cases whose ordinary side is linear, and whose private side grows with a power."""
    return [{"size": size, "ordinary": {"time": factor * size, "memory": factor * size},
             "private": {"time": factor * size ** power, "memory": factor * size}} for size in sizes]


class Reading(unittest.TestCase):
    def test_both_sides_stand_side_by_side_where_both_were_measured(self):
        amounts = {"records": ("CSV", 60.0, "MB/s"), "png": ("PNG", 400, "/s"), "jpeg": ("JPEG", 400, "/s")}
        lines = reading.table({"records": 0.5, "png": 0.2}, {"png": 0.4, "jpeg": 1.0}, amounts).splitlines()
        self.assertEqual(["| CSV | 120 MB/s | - | - |", "| PNG | 2000 /s | 1000 /s | 2.00 |"], lines[2:])


class OnGpus(unittest.TestCase):
    def test_peers_stand_beside_what_has_their_name_and_type(self):
        def log(name, *measured):
            (self.folder / name).write_text("\n".join(json.dumps(one) for one in measured) + '\n{"what": "cut')

        def ours(what, dtype, microseconds):
            return {"what": what, "dtype": dtype, "microseconds": microseconds, "rate": 1.0, "unit": "GB/s"}

        def peer(by, what, dtype, microseconds):
            return {"by": by, "what": what, "dtype": dtype, "microseconds": microseconds}

        with tempfile.TemporaryDirectory() as name:
            self.folder = pathlib.Path(name)
            (self.folder / "steps.txt").write_text("bench passed 3\n")
            log("bench.log", ours("add", "f32", 10), ours("add", "bf16", 5), ours("private step", "f32", 50))
            gpu_results.main(self.folder)
            self.assertNotIn("torch", (self.folder / "results.md").read_text())
            log("peers_kernels.log", peer("torch", "add", "f32", 11))
            gpu_results.main(self.folder)
            rows = json.loads((self.folder / "results.json").read_text())["measurements"]
            self.assertEqual([row.get("torch / sotto") for row in rows], [1.1, None, None])
            self.assertIn("| add | f32 | 10 | 1.0 | GB/s | 11 | 1.1 |", (self.folder / "results.md").read_text())

    def test_networks_have_a_verdict_each_by_samples_and_precision(self):
        def line(mode, ms, precision="bf16", **more):
            return {"model": "vit-b16", "mode": mode, "batch": 256, "precision": precision, "ms_per_step": ms,
                    "ms_halves": [ms, 1.1 * ms], "peak_bytes": ms * 2**20, **more}

        ours = [line("ordinary", 100), line("flat", 120), line("flat", 90, "f32"), line("ordinary", 50, not_captured=""),
                line("flat", 75, not_captured=""), line("flat", 110, not_captured="a reason")]
        peers = [{"by": "torch", "model": "vit-b16", "same": True}, line("ordinary", 300, by="torch"),
                 line("hooks", 880, by="opacus"), line("ghost", 660, by="opacus"), {"by": "torch", "what": "add"},
                 {"model": "vit-b16", "mode": "ghost", "batch": 256, "precision": "f32", "failed": "out of memory"}]
        rows = gpu_results.verdicts(ours, peers)
        self.assertEqual([(row["network"], row["precision"]) for row in rows],
                         [("vit-b16", "bf16"), ("vit-b16", "f32"), ("vit-b16, captured", "bf16")])
        self.assertEqual([row["private / ordinary"] for row in rows], [1.1, "", 1.5])
        self.assertEqual([row["private / ordinary peak"] for row in rows], [1.1, "", 1.5])
        self.assertEqual([row["ordinary, samples/s"] for row in rows], [2560, "", 5120])
        self.assertEqual([row["PyTorch / ordinary"] for row in rows], [3, "", 6])
        self.assertEqual([row["Opacus / private"] for row in rows], [6, "out of memory", 8.8])
        self.assertEqual([row["apart"] for row in rows], [0.1] * 3)
        peers[0]["same"] = False
        rows = gpu_results.verdicts(ours, peers[:1])
        self.assertEqual([row["PyTorch / ordinary"] for row in rows], ["another function"] * 3)

    def test_logs_that_are_cut_off_anywhere_give_the_tables_of_what_is_whole(self):
        case = {"model": "mnist", "batch": 512, "precision": "f32"}
        ours = {**case, "ms_per_step": 2.0, "ms_halves": [2, 2]}
        logs = {"networks_mnist.log": [{**ours, "mode": mode} for mode in ("ordinary", "flat")],
                "peers.log": [{"by": "torch", "model": "mnist", "same": True},
                              {"by": "torch", **case, "mode": "ordinary", "ms_per_step": 4.0}],
                "bench.log": [{"what": "add", "dtype": "f32", "microseconds": 1.0}]}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            gpu_results.main(folder)  # of nothing
            for log, lines in logs.items():
                (folder / log).write_text('a word\n7\n{"another": "line"}\n' + "\n".join(map(json.dumps, lines)))
            whole = {log: (folder / log).read_text() for log in logs}
            gpu_results.main(folder)
            self.assertIn("| mnist | 512 | f32 | 256000.0 | 256000.0 | 1.0 |  | 2.0 |", (folder / "results.md").read_text())
            for log, content in whole.items():
                for end in range(0, len(content), 9):
                    (folder / log).write_text(content[:end])
                    gpu_results.main(folder)
                (folder / log).write_text(content)


class Scaling(unittest.TestCase):
    def test_the_exponent_of_a_power_is_found(self):
        for power in (0.5, 1.0, 2.0):
            slope, factor = scaling.exponent(growing(power), "private", "time")
            self.assertAlmostEqual(slope, power)
            self.assertAlmostEqual(factor, 3.0)

    def test_only_the_upper_half_is_fitted(self):
        cases = growing(2)
        for case in cases[:3]:
            case["private"]["time"] = 1e6
        self.assertAlmostEqual(scaling.exponent(cases, "private", "time")[0], 2)
        cases[3]["private"]["time"] *= 1.5
        self.assertLess(scaling.exponent(cases, "private", "time")[0], 1.9)

    def test_what_grows_faster_is_named(self):
        self.assertEqual(scaling.growing_faster(scaling.exponents(growing(1.2))), ["time"])
        self.assertEqual(scaling.growing_faster(scaling.exponents(growing(1 + scaling.SCATTER / 2))), [])
        self.assertEqual(scaling.growing_faster(scaling.exponents(growing(0.5))), [])
        row = scaling.table([(scaling.SCANS[0], growing(1.2))]).splitlines()[-1]
        self.assertIn("| 1.00 | 1.20 | 1.00 | 1.00 |", row)
        self.assertTrue(row.endswith("| time |"), row)

    def test_the_shortest_step_and_the_greatest_peak_count(self):
        lines = [{"mode": mode, "ms_min": ms, "peak_bytes": peak} for mode, ms, peak in
                 [("ordinary", 5, 70), ("flat", 9, 90), ("ordinary", 4, 60), ("flat", 8, 95)]]
        self.assertEqual(scaling.summed_up(16, lines), {"size": 16, "ordinary": {"time": 4, "memory": 70},
                                                        "private": {"time": 8, "memory": 95}})

    def test_sizes_double_from_first_to_last(self):
        self.assertEqual(scaling.doubled(16, 128), [16, 32, 64, 128])
        for scan, last in zip(scaling.SCANS, (8192, 2048, 128, 1024)):
            self.assertEqual(scan.sizes[-1], last)
            self.assertIn(str(last), "{} {}".format(*scan.case(last)))

    def test_figures_are_well_formed_and_hold_every_point(self):
        for scan in scaling.SCANS:
            cases = growing(1.2, scan.sizes)
            drawing = xml.dom.minidom.parseString(scaling.figure({"name": scan.name, "network": scan.network, "cases": cases}))
            titles = [t.firstChild.data for t in drawing.getElementsByTagName("title")]
            for size in scan.sizes:
                # One point in the plot of time and one in the plot of memory.
                self.assertEqual(sum(title.startswith(f"private, {size}: ") for title in titles), 2)


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
        for name in ("products", "scaling"):
            self.page.write_text((ROOT / "docs/appendix/experiments.md").read_text())
            pages.write_between(self.page, name, "new")

    def test_pages_and_plots_say_what_the_results_say(self):
        copy = self.page.parent / "docs"
        shutil.copytree(ROOT / "docs", copy)
        self.assertTrue(step_results.write_pages(copy.parent))
        for path in (*copy.glob("benchmarks/*.svg"), copy / "explanation/performance.md", copy / "appendix/experiments.md"):
            self.assertEqual(path.read_text(), (ROOT / "docs" / path.relative_to(copy)).read_text(), path)

    def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios(self):
        axis = drawing.LogAxis([3, 700], 0, 300)
        self.assertEqual(axis.ticks(), [1, 10, 100, 1000])
        self.assertEqual([round(axis.at(tick), 6) for tick in axis.ticks()], [0, 100, 200, 300])
        octaves = drawing.LogAxis([16, 1024], 60, 0, base=2)
        self.assertEqual((octaves.ticks()[0], octaves.ticks()[-1]), (16, 1024))
        self.assertEqual([round(octaves.at(size), 6) for size in (16, 128, 1024)], [60, 30, 0])
        self.assertEqual(drawing.LogAxis([10, 10], 0, 1).ticks(), [10, 100])


def measured(model="mnist", batch=64, precision="f32", **ms):
    """A row of results."""
    sides = {"ordinary": 2.0, "private": 3.0} | ms
    rounds = [sides | {"ordinary MiB": 4.0, "private MiB": 5.0}]
    return {"model": model, "batch": batch, "precision": precision, "threads": 2, "date": "2026-01-02", "commit": "abc", "command": "it",
            "peers": {"torch": "2.15"} if "torch" in ms else {}, "ms": sides, "ratios": step_results.ratios(rounds)}


CPU = {"name": "A", "family": "1", "model": "2", "instructions": ["avx2"]}


class Results(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_run_replaces_the_rows_that_it_measured_and_no_others(self):
        step_results.store(self.folder, CPU, [measured("vit"), measured("mnist"), measured(precision="bf16")])
        path = step_results.store(self.folder, CPU, [measured("mnist", private=7.0), measured("gpt2")])
        rows = step_results.read(path)["rows"]
        self.assertEqual([(row["model"], row["precision"], row["ms"]["private"]) for row in rows],
                         [("mnist", "f32", 7.0), ("mnist", "bf16", 3.0), ("vit", "f32", 3.0), ("gpt2", "f32", 3.0)])

    def test_two_processors_never_share_a_file(self):
        path = step_results.store(self.folder, CPU, [measured()])
        others = [CPU | {"instructions": ["avx2", "avx512f"]}, CPU | {"model": "3"}]
        self.assertEqual(len({path, *(step_results.store(self.folder, other, [measured()]) for other in others)}), 3)
        path.write_text(path.read_text().replace('"family": "1"', '"family": "9"'))
        before = path.read_text()
        with self.assertRaises(SystemExit):
            step_results.store(self.folder, CPU, [measured()])
        self.assertEqual(path.read_text(), before)

    def test_a_processor_that_was_given_another_name_keeps_it_and_its_file(self):
        path = step_results.store(self.folder, CPU, [measured()])
        renamed = path.rename(self.folder / "other.json")
        renamed.write_text(renamed.read_text().replace(CPU["name"], "Other"))
        self.assertEqual(step_results.store(self.folder, CPU, [measured("vit")]), renamed)
        self.assertEqual(step_results.read(renamed)["processor"], CPU | {"name": "Other"})
        self.assertEqual(len(step_results.read(renamed)["rows"]), 2)

    def test_ratios_are_medians_of_ratios_within_a_round(self):
        rounds = [{"private": 1, "ordinary": 1, "opacus": 9}, {"private": 8, "ordinary": 2}, {"private": 100, "ordinary": 50}]
        self.assertEqual(step_results.ratios(rounds), {"private / ordinary": 2, "Opacus / private": 9})

    def test_tables_have_the_sides_that_were_measured(self):
        rows = step_results.table([measured()]).splitlines()
        self.assertEqual(rows[0], "| network | batch | precision | ordinary, ms | private, ms | private / ordinary | "
                                  "memory, private / ordinary |")
        self.assertEqual(rows[2], "| mnist | 64 | f32 | 2.000 | 3.000 | 1.50 | 1.25 |")
        self.assertIn("mnist, beside other work", step_results.table([measured() | {"busy": 1.5}]))
        rows = step_results.table([measured(torch=6.0) | {"floor_ms": 1.0}, measured(batch=16)]).splitlines()
        self.assertEqual(rows[2], "| mnist | 64 | f32 | 2.000 | 3.000 | 6.000 | 2.00 | 3.00 | 1.50 | 1.25 | 0.50 |")
        self.assertEqual(rows[4], "| geometric mean | | f32 |  |  |  | 2.00 | 3.00 | 1.50 | 1.25 |  |")

    def test_the_summary_has_mean_and_worst_and_marks_what_is_reached_everywhere(self):
        rows = [measured(torch=3.0), measured("vit", torch=12.0, private=3.0)]
        text = step_results.summary([{"processor": CPU, "rows": rows}])
        self.assertIn("| PyTorch/private, f32 | ≥1 | **2.00 (1.00)** |", text)
        self.assertIn("| private/ordinary | ≤1.15, small 1.4 | 1.50 (1.50) |", text)
        self.assertNotIn("Opacus", text)

    def test_goals_depend_on_what_is_measured_and_on_the_instructions(self):
        small = measured(ordinary=0.5, private=0.7)
        self.assertTrue(step_results.reached("private / ordinary", small, []))
        self.assertFalse(step_results.reached("private / ordinary", measured(ordinary=5, private=7), []))
        row = measured(precision="bf16") | {"ratios": {"private bf16 / f32": 0.6, "PyTorch / private": 0.95, "PyTorch / ordinary": 1.05}}
        self.assertTrue(step_results.reached("private bf16 / f32", row, ["avx512_bf16"]))
        self.assertFalse(step_results.reached("private bf16 / f32", row, ["avx512_bf16", "amx_bf16"]))
        self.assertTrue(step_results.reached("PyTorch / private", row, []))
        self.assertFalse(step_results.reached("PyTorch / private", row | {"precision": "f32"}, []))
        self.assertFalse(step_results.reached("PyTorch / ordinary", row, []))

    def test_the_plot_is_well_formed_and_holds_every_side(self):
        result = {"processor": CPU, "rows": [measured(torch=4.0), measured(batch=16), measured(batch=16, precision="bf16")]}
        titles = xml.dom.minidom.parseString(step_results.figure(result)).getElementsByTagName("title")
        self.assertEqual(sum(": " in title.firstChild.data for title in titles), 4)


class Processors(unittest.TestCase):
    INTEL = ("processor\t: 0\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) Platinum 8488C\n"
             "flags\t\t: avx2 sse amx_bf16 avx512f\n\n")
    AMD = ("processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9R14 96-Core Processor\n"
           "flags\t\t: avx2\n\nprocessor\t: 1\n")

    def test_name_and_instruction_sets_are_read(self):
        intel, amd = processor.described(self.INTEL), processor.described(self.AMD)
        self.assertEqual((intel["name"], intel["instructions"]), ("Intel Xeon Platinum 8488C", ["avx2", "avx512f", "amx_bf16"]))
        self.assertEqual((amd["name"], amd["family"], amd["instructions"]), ("AMD EPYC 9R14 96-Core", "25", ["avx2"]))
        self.assertEqual(processor.slug(intel), "intel-xeon-platinum-8488c-6-143-amx-bf16")
        self.assertTrue(processor.slug(processor.described("Processor\t: another kind\n")))

    def test_threads_have_cores_of_their_own(self):
        usable = os.sched_getaffinity(0)
        self.assertEqual(set(processor.cores(1000)), usable)
        self.assertEqual(len(processor.cores(1)), 1)
        self.assertEqual([processor.cores(threads, range(4), lambda number: number // 2) for threads in (1, 2, 3)], [[0], [0, 2], [0, 2, 1]])

    def test_the_busy_cores_are_counted(self):
        self.assertGreaterEqual(processor.busy_cores(0.05), 0)
        self.assertLessEqual(processor.busy_cores(0.05), os.cpu_count() + 1)


class Tables(unittest.TestCase):
    def test_two_builds_have_the_median_of_their_rounds(self):
        pairs = [(10.0, 5.0), (20.0, 8.0), (10.0, 6.0)]
        rows = compare_builds.table([("mnist, 64, f32", mode, pairs, [(100, 90)] * 3) for mode in ("ordinary", "flat")]).splitlines()
        self.assertEqual(rows[2], "| mnist, 64, f32 | ordinary | 10.000 | 6.000 | 0.500 | 0.40 to 0.60 | 0.90 |")
        self.assertEqual(rows[-1], "| geometric mean | private | | | 0.500 | | 0.90 |")

    def test_products_have_the_median_of_their_rounds(self):
        lines = [{"what": "gemm", "gflops": g, "fraction": f} for g, f in ((90, 0.7), (120, 0.9), (100, 0.79))]
        lines += [{"what": "conv", "gflops": 10, "fraction": None}]
        self.assertEqual(products.table(lines).splitlines()[2:],
                         ["| gemm | 100.0 | 0.79 | yes |", "| conv | 10.0 | - |  |"])


if __name__ == "__main__":
    unittest.main()
