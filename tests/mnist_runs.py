"""What the end-to-end tests of the sample `mnist` share: starting it and reading what it writes."""

import html.parser
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

MNIST = ""
CLOSING = re.compile(
    r"^test accuracy \d+\.\d\d %   \((no privacy|ε = (\S+), δ = (\S+))\)   \S+ epochs in \S+ s$"
)
SIZES = ["--train-size", "600", "--test-size", "40", "--batch", "64"]
# Tests run side by side: threads that wait for one another would wait for other tests too.
ALONE = ["--threads", "1"]
SMALL = [*SIZES, *ALONE]
NOISY = [*SMALL, "--noise-multiplier", "2", "--seed", "5"]
PLAIN = [*SMALL, "--no-privacy", "--seed", "5"]


def run(*arguments):
    return subprocess.run(
        [MNIST, *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def start(*arguments):
    return subprocess.Popen(
        [MNIST, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def show_on(terminal, *arguments):
    return subprocess.Popen([MNIST, *arguments], stdout=terminal)


def steps_in(line):
    found = re.search(r"step (\d+)/", line)
    return int(found.group(1)) if found else None


def read_tensors(path):
    """The tensors as (dtype, shape, bytes), and the metadata, by our own reading of the format."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return tensors, metadata


def state_of(model):
    """The file from which what was saved as `model` is resumed."""
    return model + ".state"


def read_checkpoint(model):
    """The tensors of its state, and the progress."""
    tensors, metadata = read_tensors(state_of(model))
    return tensors, json.loads(metadata["sotto.mnist.progress"])


def charged(path):
    """Releases that a ledger counts: reservations whole, unless their run settles them."""
    total, open_reservations = 0, {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                break  # the crash was in the middle of this append
            entry = json.loads(line)
            if "reserve" in entry:
                total += entry["reserve"]
                open_reservations[entry["run"]] = entry["reserve"]
            elif "settle" in entry:
                total += entry["settle"] - open_reservations.pop(entry["run"])
    return total


def differing(a, b):
    """The names under which two dictionaries hold different things."""
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


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

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
        """The run fails with one line that holds the fact, and prints nothing else."""
        done = run(*arguments)
        self.assertEqual(done.returncode, status, (arguments, done.stdout, done.stderr))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("mnist: "), done.stderr)
        self.assertIn(fact, done.stderr)
        self.assertNotIn("test accuracy", done.stdout)

    def report(self, *arguments):
        self.succeed(*arguments, "--json", self.path("run.json"))
        with open(self.path("run.json"), encoding="utf-8") as file:
            return json.load(file)


def main():
    """Tests the program that the first argument names; the others are unittest's."""
    global MNIST
    MNIST = os.path.abspath(sys.argv.pop(1))
    unittest.main("__main__")
