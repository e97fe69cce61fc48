"""Shared by the tests of the sample `privacy_budget`: starting it and reading its answers."""

import json
import subprocess
import unittest

import programs
from programs import run_program, take_programs

PROGRAM = WRITE_LEDGERS = ""
DELTA = ["--delta", "1e-5"]
DIGITS = ["--dataset-size", "60000", "--batch-size", "256"]
PLAIN = ["--noise-multiplier", "1.1", "--sampling-rate", "0.01", "--steps", "1000"]
# The epsilon of PLAIN at delta 1e-5, between the bounds of tests/dp/accounting/pld/pld_accountant_test.cpp.
PLAIN_EPSILON = (1.50526, 1.52547)
FULL = ["--sampling", "full_batch", "--noise-multiplier", "4", "--steps", "16"]
FULL_EPSILON = 4.377178  # in closed form, tests/dp/accounting/analytic_gaussian_test.cpp


def run(*arguments, **options):
    return run_program([PROGRAM, *arguments], **options)


def start_writing_ledgers(folder):
    """Starts a program that writes the ledgers, and waits for them; it ends when its standard input is closed."""
    writer = subprocess.Popen([WRITE_LEDGERS, folder], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "ready\n"
    return writer


class Case(programs.Case):
    def succeed(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        self.assertEqual(done.stderr, "")
        return done.stdout

    def ask(self, *arguments):
        return json.loads(self.succeed(*arguments, "--json"))

    def spent(self, *arguments):
        """The first answer for delta 1e-5."""
        return self.ask("spent", *DELTA, *arguments)["answers"][0]

    def refuse(self, status, fact, *arguments):
        """Checks that the run fails with one line that contains the fact, and prints nothing else."""
        done = run(*arguments)
        self.told(done, status, fact)
        self.assertEqual(done.stdout, "")


def main():
    """Tests the programs that the first two arguments name; the other arguments belong to unittest."""
    global PROGRAM, WRITE_LEDGERS
    PROGRAM, WRITE_LEDGERS = take_programs(2)
    unittest.main("__main__")
