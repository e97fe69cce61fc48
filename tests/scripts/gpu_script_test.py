#!/usr/bin/env python3
"""Tests the scripts that run on a machine with a GPU, where there is none, on programs that are scripts themselves.

Usage: gpu_script_test.py [unittest options]
"""
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).parent


class Script(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)
        self.bundle, self.results = self.folder / "a bundle", self.folder / "results"
        self.archive = self.folder / "out" / "slot.tar.gz"
        self.bundle.mkdir()
        for script in ("gpu_slot.sh", "gpu_results.py"):
            shutil.copy(SCRIPTS / script, self.bundle)
        (self.bundle / "commit.txt").write_text("one\n")
        (self.bundle / "units.txt").write_text("pool test_pool [#pool_test]\ngemm test_gemm [#gemm_test]\n")
        for name in ("bin/test_core", "bin/test_pool", "bin/test_gemm", "bin/conformance", "bin/bench_gpu"):
            self.program(name, "exit 0")

    def program(self, name, text):
        """A program of the bundle; each run adds a line to NAME.runs."""
        path = self.bundle / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho run >>'{path}.runs'\n{text}\n")
        path.chmod(0o755)

    def runs(self, name):
        log = self.bundle / f"{name}.runs"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def call(self, script, *arguments, **environment):
        known = {"RESULTS": str(self.results), "OUT": str(self.archive.parent)}
        return subprocess.run(["sh", script, *arguments], env=os.environ | known | environment, capture_output=True,
                              text=True, check=False, timeout=300)

    def slot(self, *arguments, **environment):
        return self.call(self.bundle / "gpu_slot.sh", *arguments, **environment)

    def statuses(self):
        with tarfile.open(self.archive) as archive:
            lines = archive.extractfile("./steps.txt").read().decode().splitlines()
        self.assertEqual(len(lines), len({line.split()[0] for line in lines}))
        return {name: status for name, status, _ in (line.split() for line in lines)}

    def test_wrong_arguments_are_refused_before_anything_is_done(self):
        slot = "a part and a number of seconds are wanted"
        for script, arguments, environment, reason in (
                ("gpu_slot.sh", (), {}, slot), ("gpu_slot.sh", ("20",), {}, slot),
                ("gpu_slot.sh", ("tests", "bench"), {}, "SECONDS is no number: bench"),
                ("gpu_slot.sh", ("tests", "0"), {}, "SECONDS is no number: 0"),
                ("gpu_slot.sh", ("tests", "keep", "20"), {}, "no part is called keep"),
                ("gpu.sh", ("ten",), {}, "SECONDS is no number: ten"), ("gpu.sh", ("6x",), {}, "SECONDS is no number: 6x"), ("gpu.sh", ("1", "2"), {}, "usage: gpu.sh"),
                ("gpu.sh", (), {"PATH": "/usr/bin:/bin"}, "nvidia-smi finds no GPU"),
                ("gpu_bundle.sh", (), {}, "usage: gpu_bundle.sh"), ("gpu_bundle.sh", ("--help",), {}, "usage: gpu_bundle.sh"),
                ("gpu_bundle.sh", (str(self.results),), {"SOTTO_BUILD": "/nowhere"}, "SOTTO_BUILD was not built: /nowhere"),
                ("gpu_bundle.sh", (str(self.results),), {"SOTTO_MNIST": "/nowhere"}, "SOTTO_MNIST has no train-images: /nowhere")):
            done = self.call(SCRIPTS / script, *arguments, **environment)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(reason, done.stderr)
            self.assertFalse(self.results.exists())

    def test_a_second_call_does_what_the_first_one_did_not(self):
        self.program("bin/test_gemm", "echo 'error: 3 is not 4'; exit 7")
        done = self.slot("tests", "60")
        self.assertEqual(done.returncode, 1)
        self.assertIn("gemm failed(7)", done.stdout)
        self.assertIn("1:error: 3 is not 4", done.stdout)
        self.assertEqual((self.statuses()["pool"], self.statuses()["gemm"]), ("passed", "failed(7)"))
        self.program("bin/test_gemm", "exit 0")
        self.assertEqual(self.slot("tests", "bench", "60").returncode, 0)
        self.assertEqual((self.runs("bin/test_pool"), self.runs("bin/test_gemm")), (1, 2))
        self.assertEqual((self.statuses()["gemm"], self.statuses()["bench"]), ("passed", "passed"))
        (self.bundle / "commit.txt").write_text("another\n")
        self.slot("bench", "60")
        self.assertEqual(self.statuses(), {"bench": "passed"})
        self.assertEqual(self.runs("bin/bench_gpu"), 2)

    def test_a_program_that_hangs_is_stopped_and_the_others_count(self):
        self.program("bin/test_pool", "trap '' TERM\nwhile :; do sleep 1; done")
        done = self.slot("tests", "4")
        self.assertEqual((self.statuses()["pool"], self.statuses()["gemm"]), ("stopped", "passed"))
        self.assertIn("pool stopped", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_a_program_that_cannot_be_ended_lets_the_call_end(self):
        self.program("timeout", """case "$*" in *test_pool*) exec sleep 250 ;; *) exec /usr/bin/timeout "$@" ;; esac""")
        done = self.slot("tests", "bench", "3", PATH=f"{self.bundle}:{os.environ['PATH']}")
        self.assertIn("not all of tests bench was done", done.stdout)
        self.assertEqual(self.statuses()["gemm"], "passed")

    def test_the_archive_is_written_after_each_part(self):
        self.program("bin/bench_gpu", f"tar xzOf '{self.archive}' ./steps.txt >'{self.folder}/seen'")
        self.slot("tests", "bench", "60")
        self.assertIn("gemm passed", (self.folder / "seen").read_text())
        self.assertEqual(self.statuses()["bench"], "passed")
        with tarfile.open(self.archive) as archive:
            self.assertIn("| gemm | passed |", archive.extractfile("./results.md").read().decode())

    def test_steps_that_find_no_time_are_listed(self):
        done = self.slot("tests", "profile", "train", "1")
        self.assertEqual(set(self.statuses().values()), {"skipped"})
        for line in ("pool skipped 0", "there is no libkernel_times.so", "there is no mnist"):
            self.assertIn(line, done.stdout)
        self.assertEqual(self.runs("bin/test_pool"), 0)
        self.assertEqual(done.returncode, 1)

    def test_nothing_else_is_done_where_no_gpu_is_used(self):
        self.program("bin/conformance", "echo no driver; exit 2")
        done = self.slot("smoke", "tests", "60")
        self.assertIn("no driver\nno GPU is used: nothing else is done", done.stdout)
        self.assertEqual(self.statuses()["gpu_is_used"], "failed(2)")
        self.assertEqual(self.runs("bin/test_pool"), 0)

    def test_a_unit_without_cases_fails(self):
        self.program("bin/test_pool", "echo No test cases matched; exit 0")
        self.slot("tests", "60")
        self.assertEqual(self.statuses()["pool"], "failed(nothing)")


if __name__ == "__main__":
    unittest.main()
