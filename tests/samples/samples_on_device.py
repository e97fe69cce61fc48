#!/usr/bin/env python3
"""Runs the samples that have --device on a GPU that is pretended (fake_gpu.cpp).

Usage: samples_on_device.py PATH_OF_MNIST PATH_OF_AUDIT PATH_OF_MEMORY_PROFILE [unittest options]
"""

import json
import os
import struct
import unittest.mock

import mnist_runs
from mnist_runs import ALONE, Case
from programs import charged, read_checkpoint, run_program, take_programs

SIZES = [*ALONE, "--train-size", "80", "--test-size", "10"]
SMALL = [*SIZES, "--batch-size", "16", "--seed", "5", "--ema", "0.9"]
PLAIN = [*SMALL, "--no-privacy"]
NOISY = [*SMALL, "--noise-multiplier", "1"]
GPU = ["--device", "cuda"]
# The CPU and the device compute in f32 with different kernels.
TOLERANCE = 1e-5
PROGRAMS = {}


def numbers(tensor):
    dtype, _, data = tensor
    letter, width = {"F32": ("f", 4), "I64": ("q", 8)}[dtype]
    return struct.unpack(f"<{len(data) // width}{letter}", data)


class OnDevice(Case):
    def done(self, program, *arguments):
        done = run_program([PROGRAMS[program], *arguments])
        self.assertEqual(done.stderr, "")
        return done.stdout

    def same(self, one, other):
        a, b = read_checkpoint(self.path(one))[0], read_checkpoint(self.path(other))[0]
        self.assertEqual(a.keys(), b.keys())
        for name, tensor in a.items():
            self.assertEqual(tensor[:2], b[name][:2])
            for x, y in zip(numbers(tensor), numbers(b[name])):
                self.assertAlmostEqual(x, y, delta=TOLERANCE, msg=name)

    def test_training_on_the_device_is_that_on_the_cpu(self):
        # Physical batches of several sizes, so that some are prefetched.
        run = [*PLAIN, "--physical-batch", "6", "--steps", "6", "--save"]
        here = self.report(*run, self.path("here"))
        there = self.report(*run, self.path("there"), *GPU)
        self.same("here", "there")
        self.assertEqual(here["test_accuracy"], there["test_accuracy"])
        for a, b in zip(here["points"], there["points"]):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=TOLERANCE * abs(a["loss"]))
        self.assertEqual({row["value"] for row in there["settings"] if row["name"] == "device"},
                         {"cuda:0"})

    def test_a_captured_run_is_the_same(self):
        run = [*PLAIN, "--physical-batch", "6", "--steps", "4", "--save"]
        self.succeed(*run, self.path("plain"), *GPU)
        report = self.report(*run, self.path("captured"), *GPU, "--cuda-graph")
        self.same("plain", "captured")
        # The last of the physical batches of 6, 6 and 4 rows is not full.
        self.assertEqual(self.captured(report),
                         "8 physical batches; not: 4 rows where 6 were captured, with their sum")

    def test_a_private_captured_run_is_charged_as_others(self):
        run = [*NOISY, "--steps", "3"]
        report = self.report(*run, *GPU, "--cuda-graph")
        self.assertEqual(self.captured(report), "3 physical batches")
        self.assertEqual(report["privacy"]["epsilon"], self.report(*run)["privacy"]["epsilon"])
        super().refuse(2, "--cuda-graph: the cpu has no CUDA graphs", *run, "--cuda-graph")

    @staticmethod
    def captured(report):
        return next(row["value"] for row in report["settings"] if row["name"] == "captured")

    def test_a_run_goes_on_on_another_device(self):
        self.succeed(*PLAIN, "--steps", "4", "--save", self.path("whole"))
        for first, second in ((GPU, []), ([], GPU)):
            model = self.path(f"from{len(first)}")
            self.succeed(*PLAIN, "--steps", "2", "--save", model, *first)
            self.succeed("--resume", model, *ALONE, "--steps", "4", *second)
            self.same("whole", f"from{len(first)}")

    def test_a_private_run_goes_on_on_another_device_and_spends_the_same(self):
        epsilon = self.report(*NOISY, "--steps", "4")["privacy"]["epsilon"]
        for first, second in ((GPU, []), ([], GPU)):
            model = self.path(f"from{len(first)}")
            self.succeed(*NOISY, "--steps", "2", "--save", model, *first)
            privacy = self.report("--resume", model, *ALONE, "--steps", "4", *second)["privacy"]
            self.assertEqual(privacy["epsilon"], epsilon)
            self.assertEqual(charged(model + ".ledger"), 4)

    def test_a_memory_limit_is_the_device_s(self):
        limit = 1_000_000
        step = [*SIZES, "--batch-size", "40", "--steps", "1", "--no-privacy", *GPU]
        free, held = (self.report(*step, *more)
                      for more in ([], ["--memory-limit", str(limit)]))
        self.assertGreater(max(phase["peak_bytes"] for phase in free["phases"]), limit)
        self.assertLessEqual(max(phase["peak_bytes"] for phase in held["phases"]), limit)

    def test_an_audit_bounds_what_is_lost_on_the_device(self):
        self.done("audit", *ALONE, "--train-size", "10", "--canaries", "60", "--batch-size", "70",
                  "--steps", "1", "--noise-multiplier", "0.2", "--json", self.path("audit.json"),
                  *GPU)
        with open(self.path("audit.json"), encoding="utf-8") as file:
            found = json.load(file)
        # At this low noise nearly all of the 60 guesses are right.
        self.assertGreater(found["one_run"]["epsilon"], 0.5)
        self.assertLess(found["one_run"]["epsilon"], found["accountant"])

    def test_a_memory_profile_is_of_the_device_s_memory(self):
        found = []
        for device in ([], GPU):
            self.done("memory_profile", *ALONE, "--model", "ffnn", "--batch-size", "8", "--json",
                      self.path("found.json"), *device)
            with open(self.path("found.json"), encoding="utf-8") as file:
                found.append(json.load(file))
        here, there = found
        self.assertEqual(here["kinds"]["parameters"], there["kinds"]["parameters"])
        # The data set stays on the host.
        self.assertLess(there["first"], here["first"])

    def refuse(self, program, fact, *arguments):
        done = run_program([PROGRAMS[program], *arguments])
        self.told(done, 2, fact)
        self.assertTrue(done.stderr.startswith(f"{os.path.basename(PROGRAMS[program])}: --device: "), done.stderr)
        self.assertEqual(done.stdout, "")

    def test_a_device_that_cannot_be_used_is_refused_before_anything_is_read_or_written(self):
        save = ["--data", self.path("nowhere"), "--save", self.path("model")]
        for program, files in (("mnist", save), ("audit", save[:2]), ("memory_profile", [])):
            self.refuse(program, "there are 1 GPUs", "--device", "cuda:1", *files)
            self.refuse(program, '"tpu"', "--device", "tpu", *files)
            with unittest.mock.patch.dict(os.environ, {"SOTTO_CUDA_LIBRARY": "/nowhere/lib.so"}):
                self.refuse(program, "no GPU part", *GPU, *files)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    PROGRAMS = dict(zip(("mnist", "audit", "memory_profile"), take_programs(3)))
    mnist_runs.MNIST = PROGRAMS["mnist"]
    unittest.main()
