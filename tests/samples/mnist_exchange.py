#!/usr/bin/env python3
"""Checks that the sample `mnist` and a program of one's own go on with each other's checkpoints.

Usage: mnist_exchange.py PATH_OF_MNIST PATH_OF_OWN_PROGRAM [unittest options]
"""

import os
import unittest

import mnist_runs
from mnist_runs import ALONE, NOISY, Case
from programs import charged, read_tensors, run_program, state_of, take_programs


class Exchange(Case):
    def own(self, name, steps):
        done = run_program([OWN, name, str(steps)])
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout

    def section(self, name):
        return read_tensors(state_of(name))[1].get("sotto.program")

    def test_a_program_of_ones_own_goes_on_with_a_checkpoint_of_mnist(self):
        model = self.path("m")
        report = self.report(*NOISY, "--steps", "2", "--save", model)
        self.assertIn('"program":"mnist"', self.section(model))
        out = self.own(model, 5)
        self.assertNotIn("data are not those", out)
        self.assertIn("step 5, epsilon ", out)
        self.assertGreater(float(out.split()[-1]), report["privacy"]["epsilon"])
        self.assertEqual(5, charged(model + ".ledger"))
        self.assertIsNone(self.section(model))

    def test_mnist_goes_on_with_the_checkpoint_of_another_program_as_its_command_line_says(self):
        model = self.path("m")
        self.own(model, 3)
        given = ["--resume", model, *NOISY, "--steps", "5"]
        out = self.succeed(*given)
        self.assertIn(f"{state_of(model)} has no section of sotto-mnist: the command line's settings are used", out)
        self.assertIn("resumed at step 3", out)
        self.assertEqual(5, charged(model + ".ledger"))
        self.assertIn('"program":"mnist"', self.section(model))
        # From here on it knows them.
        self.succeed("--resume", model, *ALONE, "--steps", "6")
        self.assertEqual(6, charged(model + ".ledger"))

    def test_what_does_not_fit_another_programs_checkpoint_is_refused_or_told(self):
        model = self.path("m")
        self.own(model, 3)
        before = self.contents()
        self.refuse(2, "privacy is false here and true in the checkpoint", "--resume", model, "--no-privacy")
        self.assertEqual(before, self.contents())
        other = ["3" if word == "2" else word for word in NOISY]
        self.refuse(1, "the checkpoint does not fit: engine state: the noise multiplier would be 3 and was 2", "--resume",
                    model, *other, "--steps", "5")
        out = self.succeed("--resume", model, *NOISY, "--steps", "4", "--lr", "0.1", "--quiet")
        self.assertIn("resumed, but ", out)
        self.assertEqual(4, charged(model + ".ledger"))


if __name__ == "__main__":
    mnist_runs.MNIST, OWN = take_programs(2)
    unittest.main()
