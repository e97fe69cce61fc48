#!/usr/bin/env python3
"""Gives every option of every program each kind of value that people and scripts give by mistake.

Usage: options_test.py PATH_OF_PROGRAM... [unittest options]

The options are read from the help, so that the test covers future options too. No value ends a
program by a signal or makes it hang: it is accepted, or refused in one line that names the option.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from programs import png, read_tensors, run_program

PROGRAMS = []
SECONDS = 30  # a run takes a few milliseconds; after this time it counts as hanging
PRIVATE = ["--noise-multiplier", "0.5"]
PHASE = [*PRIVATE, "--sampling-rate", "1", "--steps", "4"]
TARGET = ["--delta", "1e-5", "--epsilon", "3"]
LEDGER = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "../fuzz/ledger_corpus/ledger.jsonl")
# A run that takes no time, for each command.
SMALL = {
    "mnist": ["--train-size", "40", "--test-size", "10", "--batch-size", "8", "--steps", "1",
              "--threads", "1", *PRIVATE],
    "tune": ["--train-size", "40", "--test-size", "10", "--public-rows", "10", "--batch-size", "8", "--steps", "1",
             "--threads", "1", *PRIVATE],
    "reweight": ["--train-size", "100", "--test-size", "10", "--clean", "10", "--batch-size", "8", "--method", "network",
                 "--steps", "1", "--threads", "1", *PRIVATE],
    "audit": ["--train-size", "10", "--canaries", "64", "--batch-size", "9", "--steps", "1", "--threads",
              "1", *PRIVATE],
    "memory_profile": ["--model", "logreg", "--batch-size", "4", "--threads", "1"],
    "memory_tour": ["--width", "8", "--layers", "1", "--batch-size", "8"],
    "privacy_budget spent": ["--delta", "1e-5", *PHASE],
    "privacy_budget compare": ["--delta", "1e-5", *PHASE],
    "privacy_budget noise": [*TARGET, *PHASE[2:]],
    "privacy_budget steps": [*TARGET, *PHASE[:4]],
    "privacy_budget batch": [*TARGET, *PRIVATE, "--steps", "4"],
    "privacy_budget inspect": [LEDGER],
    "tabular train": ["--train-size", "40", "--test-size", "10", "--batch-size", "8", "--steps", "1",
                      "--threads", "1", *PRIVATE],
    "text train": ["--train-size", "40", "--test-size", "10", "--batch-size", "8", "--steps", "1",
                   "--hidden", "4", "--threads", "1", *PRIVATE],
    "images train": ["--train-size", "40", "--test-size", "10", "--size", "16", "--batch-size", "8", "--steps", "1",
                     "--threads", "1", *PRIVATE],
    "tabular people": ["--out", "people.csv", "--rows", "10"],
    "images shapes": ["--out", "drawn", "--count", "10"],
    "text sentences": ["--out", "drawn", "--count", "10"],
}
NUMBERS = set("NXDEQP")
# Kinds of values that every option refuses, and kinds that an option with a number refuses.
REFUSED = {"empty", "missing", "twice"}
REFUSED_NUMBERS = {"negative", "nan", "infinite", "beyond", "octal", "unknown"}
VALUES = {"empty": "", "missing": "--help", "negative": "-1", "zero": "0", "nan": "nan",
          "infinite": "inf", "beyond": "1" + 400 * "0", "huge": "9000000000000000000",
          "octal": "0x10", "unknown": "unknown"}


def short(program):
    """memory_profile of sotto-memory-profile."""
    return os.path.basename(program).removeprefix("sotto-").replace("-", "_")


def make_files(folder):
    """Files that small runs need."""
    def path(name):
        return os.path.join(folder, name)

    def of(program, *arguments):
        done = run_program([program, *arguments])
        assert done.returncode == 0, done.stderr

    for program in PROGRAMS:
        name = short(program)
        if name not in ("tabular", "text", "images"):
            continue
        model = path(name)
        of(program, "train", *SMALL[name + " train"], "--save", model)
        if name == "tabular":
            of(program, "people", "--out", path("people.csv"), "--rows", "20")
            SMALL["tabular schema"] = ["--data", path("people.csv")]
            SMALL["tabular evaluate"] = ["--model", model, "--data", path("people.csv")]
            SMALL["tabular predict"] = [*SMALL["tabular evaluate"], "--out", "predictions.csv"]
        elif name == "text":
            of(program, "train", *SMALL["text train"], "--task", "generate", "--save", path("writer"))
            classes = json.loads(read_tensors(model)[1]["sotto.text.model"])["classes"]
            for kind in classes:
                os.makedirs(path("texts"), exist_ok=True)
                with open(path(f"texts/{kind}"), "w", encoding="utf-8") as file:
                    file.write("a line\nanother\n")
            SMALL["text evaluate"] = ["--model", model, "--data", path("texts")]
            SMALL["text predict"] = ["--model", model, "--data", path("texts/" + classes[0]), "--out",
                                     "predictions.csv"]
            SMALL["text generate"] = ["--model", path("writer"), "--length", "3"]
        else:
            classes = json.loads(read_tensors(model)[1]["sotto.images.model"])["classes"]
            for kind in classes:
                os.makedirs(path(f"pictures/{kind}"))
                with open(path(f"pictures/{kind}/one.png"), "wb") as file:
                    file.write(png([list(range(96))] * 32))
            SMALL["images evaluate"] = ["--model", model, "--data", path("pictures"), "--threads", "1"]
            SMALL["images predict"] = [*SMALL["images evaluate"], "--out", "predictions.csv"]


def run(command, arguments):
    with tempfile.TemporaryDirectory() as folder:
        try:
            return run_program([*command, *arguments], cwd=folder, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return None


def commands():
    """The programs; of a program with subcommands, each subcommand."""
    for program in PROGRAMS:
        text = run([program], ["--help"]).stdout
        _, _, listed = text.partition("\nSubcommands:\n")
        names = re.findall(r"^  (\w+) ", listed, re.MULTILINE)
        yield from ([program, name] for name in names) if names else [[program]]


def options(command):
    """The name of each option, its type or None, and whether it takes several values."""
    for line in run(command, ["--help"]).stdout.splitlines():
        found = re.match(r"  (--[\w-]+)(?: ([A-Z=]+)(\S*)( \.\.\.)?)?  ", line + "  ")
        if found:
            name, kind, rest, several = found.groups()
            yield name, kind and kind.split("=")[0], bool(several) or rest == ",..."


def name_of(command):
    return " ".join([short(command[0]), *command[1:]])


def without(arguments, name):
    """The arguments, but for an option and its value."""
    if name not in arguments:
        return arguments
    at = arguments.index(name)
    return arguments[:at] + arguments[at + 2:]


def cases():
    for command in commands():
        small = SMALL.get(name_of(command), [])
        for name, kind, several in options(command):
            if kind is None:
                for what, given in (("empty", [name + "="]), ("twice", [name, name]),
                                    ("unknown", [name + "=unknown"])):
                    yield command, name, kind, what, [*small, *given]
                continue
            rest = without(small, name)
            for what, value in VALUES.items():
                yield command, name, kind, what, [*rest, name, value]
            yield command, name, kind, "empty", [*rest, name + "="]
            if not several:
                yield command, name, kind, "twice", [*rest, name, "1", name, "1"]


class Options(unittest.TestCase):
    def test_every_program_is_here_with_a_small_run_that_works(self):
        for command in commands():
            done = run(command, SMALL.get(name_of(command), []))
            self.assertIn(done.returncode, (0, 3), (command, done.stderr))  # 3: audit's finding
            self.assertEqual(done.stderr, "")

    def test_what_no_program_knows_is_refused(self):
        for command in commands():
            for given in (["--nothing"], ["--nothing", "1"], ["stray"], [""], ["-x"]):
                done = run(command, [*SMALL.get(name_of(command), []), *given])
                self.assertEqual(done.returncode, 2, (command, given, done.stderr))
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_whole_numbers_are_written_in_plain_digits(self):
        for program, option in (("mnist", "--steps"), ("tabular people", "--rows"), ("images shapes", "--seed"),
                                ("privacy_budget spent", "--steps"), ("memory_tour", "--width")):
            command = next(c for c in commands() if name_of(c) == program)
            for value in ("1e3", "1.5", "1000.0", "1_000", "1,000", "1'000", "0x10", "010", "+5", "1k", "--", "1 000"):
                done = run(command, [*without(SMALL[program], option), f"{option}={value}"])
                self.assertEqual((2, f"{os.path.basename(command[0])}: {option}: {value} is not a whole number in plain "
                                     "digits, such as 1000\n"), (done.returncode, done.stderr))
            for value in (40 * "9", "-" + 40 * "9"):
                done = run(command, [*without(SMALL[program], option), f"{option}={value}"])
                self.assertRegex(done.stderr, f"{option}: {value} is not from (0|-[0-9]+) to [0-9]+\n")
        command = next(c for c in commands() if name_of(c) == "mnist")
        for value in ("1e-400", "-1e-400", "1e400"):
            self.assertIn(f"--lr: {value} is too large or too small", run(command, [f"--lr={value}"]).stderr)

    def test_what_this_machine_has_no_memory_for_is_refused_before_it_is_made(self):
        for program, option, value in (("memory_tour", "--width", "1000000"),
                                       ("mnist", "--train-size", "100000000000"),
                                       ("mnist", "--test-size", "100000000000"),
                                       ("reweight", "--clean", "100000000000"),
                                       ("audit", "--train-size", "100000000000")):
            command = next(c for c in commands() if name_of(c) == program)
            done = run(command, [*without(SMALL[program], option), option, value])
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, rf"^{os.path.basename(command[0])}: .*{option}.* GiB are needed, .*\n$")

    def test_every_value_of_every_option_is_taken_or_refused_in_one_line_that_names_it(self):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            tried = [(case, pool.submit(run, case[0], case[4])) for case in cases()]
        self.assertGreater(len(tried), 1000)
        for case, done in tried:
            with self.subTest(case=(name_of(case[0]), *case[4])):
                self.judge(case, done.result())

    def judge(self, case, done):
        command, option, kind, what, arguments = case
        self.assertIsNotNone(done, "still busy")
        self.assertGreaterEqual(done.returncode, 0, done.stderr)
        lines = done.stderr.splitlines()
        refused = what in REFUSED or kind is None
        refused |= kind in NUMBERS and what in REFUSED_NUMBERS
        refused |= kind in ("NAME", "SIZE") and what == "unknown"
        if refused:
            self.assertEqual(done.returncode, 2, done.stderr)
        if done.returncode == 2:
            self.assertEqual(done.stdout, "")
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertTrue(lines[0].startswith(os.path.basename(command[0]) + ": "), lines)
            self.assertIn(option, lines[0])
        elif done.returncode == 1:  # a file that is not there, or does not hold what it should
            self.assertIn(kind, ("DIR", "FILE", "PATH"), done.stderr)
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertIn(arguments[-1], lines[0])
        else:
            self.assertIn(done.returncode, (0, 3), done.stderr)  # 3: audit's finding
            self.assertEqual(lines, [])


def main():
    """Tests the programs that the first arguments name; the other arguments belong to unittest."""
    while len(sys.argv) > 1 and os.path.exists(sys.argv[1]):
        PROGRAMS.append(os.path.abspath(sys.argv.pop(1)))
    if not PROGRAMS:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        make_files(folder)
        unittest.main("__main__")


if __name__ == "__main__":
    main()
