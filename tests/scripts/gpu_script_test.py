#!/usr/bin/env python3
"""Tests tests/scripts/gpu.sh where there is no GPU: its arguments, and that it goes on where it was stopped.

Usage: gpu_script_test.py [unittest options]
"""
import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("gpu.sh")


class Script(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)
        self.build, self.results = self.folder / "build", self.folder / "results"
        for folder in ("tests/conformance", "tests/benchmarks"):
            (self.build / folder).mkdir(parents=True)

    def program(self, name, text):
        """A program in the place of one that was built; each run adds a line to NAME.runs."""
        path = self.build / "tests" / name
        path.write_text(f"#!/bin/sh\necho run >>{path}.runs\n{text}\n")
        path.chmod(0o755)

    def runs(self, name):
        log = self.build / "tests" / f"{name}.runs"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def run_script(self, *arguments, **environment):
        known = {"SOTTO_BUILD": str(self.build), "SOTTO_SECONDS": "60"}
        return subprocess.run(["sh", SCRIPT, *arguments], env=os.environ | known | environment, capture_output=True,
                              text=True, check=False)

    def status(self, name):
        lines = (line.split() for line in (self.results / "steps.txt").read_text().splitlines())
        return {step: status for step, status, _ in lines}.get(name)

    def test_wrong_arguments_are_refused_before_anything_is_done(self):
        for arguments, environment, reason in (
                ((str(self.results), "more"), {}, "2 arguments"), (("--help",), {}, "no option is called --help"),
                ((str(self.results),), {"SOTTO_SECONDS": "ten"}, "SOTTO_SECONDS is no number: ten"),
                ((str(self.results),), {"SOTTO_BUILD": "/nowhere"}, "SOTTO_BUILD was not built: /nowhere")):
            done = self.run_script(*arguments, **environment)
            self.assertEqual(done.returncode, 2)
            self.assertIn(reason, done.stderr)
            self.assertIn("usage: gpu.sh", done.stderr)
            self.assertFalse(self.results.exists())

    def test_a_second_call_does_what_the_first_one_did_not(self):
        self.program("test_core", "exit 0")
        self.program("test_kernels_cuda", "exit 1")
        self.program("benchmarks/bench_gpu", """echo '{"what": "add", "dtype": "f32", "microseconds": 10}'""")
        self.assertEqual(self.run_script(str(self.results)).returncode, 0)
        self.assertEqual((self.status("devices"), self.status("gpu_ops")), ("passed", "failed"))
        self.assertIn("| add | f32 | 10 |", (self.results / "results.md").read_text())
        devices, operations = self.runs("test_core"), self.runs("test_kernels_cuda")
        self.program("test_kernels_cuda", "exit 0")
        self.run_script(str(self.results))
        self.assertEqual(self.runs("test_core"), devices)
        self.assertGreater(self.runs("test_kernels_cuda"), operations)
        self.assertEqual(self.status("gpu_ops"), "passed")
        (self.results / "commit.txt").write_text("another\n")
        self.run_script(str(self.results))
        self.assertGreater(self.runs("test_core"), devices)

    def test_steps_that_find_no_time_are_listed(self):
        self.program("test_core", "exit 0")
        self.run_script(str(self.results), SOTTO_SECONDS="0")
        self.assertEqual(self.status("devices"), "skipped")
        self.assertIn("| devices | skipped | 0 |", (self.results / "results.md").read_text())


if __name__ == "__main__":
    unittest.main()
