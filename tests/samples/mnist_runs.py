"""Shared by the end-to-end tests of the sample `mnist`: starting it and reading its output."""

import html.parser
import json
import os
import re
import struct
import subprocess
import unittest

import programs
from programs import run_program, take_programs

MNIST = ""
CLOSING = re.compile(
    r"^test accuracy \d+\.\d\d %   \((no privacy|ε = (\S+), δ = (\S+))\)   \S+ epochs in \S+ s$"
)
SIZES = ["--train-size", "600", "--test-size", "40", "--batch-size", "64"]
# Tests run in parallel: threads that wait for each other would wait for other tests too.
ALONE = ["--threads", "1"]
SMALL = [*SIZES, *ALONE]
NOISY = [*SMALL, "--noise-multiplier", "2", "--seed", "5"]
PLAIN = [*SMALL, "--no-privacy", "--seed", "5"]


def run(*arguments, **options):
    return run_program([MNIST, *arguments], **options)


def start(*arguments):
    return subprocess.Popen(
        [MNIST, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def show_on(terminal, *arguments):
    return subprocess.Popen([MNIST, *arguments], stdout=terminal)


def steps_in(line):
    found = re.search(r"step (\d+)/", line)
    return int(found.group(1)) if found else None


def differing(a, b):
    """The keys under which two dictionaries hold different values."""
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def updates_of(tensors):
    """The update counts that the optimizer keeps for each parameter."""
    return {
        struct.unpack("<q", data)[0]
        for name, (_, _, data) in tensors.items()
        if name.startswith("optimizer.") and name.endswith(".steps")
    }


class Page(html.parser.HTMLParser):
    """Finds tags that do not nest; keeps the text."""

    VOID = {"meta", "br", "link", "img", "hr"}

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.text = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data):
        self.text += data


class Case(programs.Case):
    def contents(self):
        found = {}
        for name in os.listdir(self.folder):
            with open(self.path(name), "rb") as file:
                found[name] = file.read()
        return found

    def succeed(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        closing = [line for line in done.stdout.splitlines() if line.startswith("test accuracy")]
        self.assertEqual(len(closing), 1, done.stdout)
        self.assertRegex(closing[0], CLOSING)
        self.assertEqual(done.stdout.splitlines()[-1], closing[0])
        return done.stdout

    def refuse(self, status, fact, *arguments):
        """Checks that the run fails with one line that contains the fact, and prints nothing else."""
        done = run(*arguments)
        self.told(done, status, fact)
        self.assertNotIn("test accuracy", done.stdout)

    def report(self, *arguments):
        self.succeed(*arguments, "--json", self.path("run.json"))
        with open(self.path("run.json"), encoding="utf-8") as file:
            return json.load(file)


def main():
    """Tests the program that the first argument names; the other arguments belong to unittest."""
    global MNIST
    (MNIST,) = take_programs(1)
    unittest.main("__main__")
