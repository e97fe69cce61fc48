"""What the tests of programs share: starting them, what they say, and the files that they leave."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest


def take_programs(count):
    """The paths that the first arguments name; those behind them are unittest's."""
    if len(sys.argv) <= count:
        sys.exit(sys.modules["__main__"].__doc__)
    taken = [os.path.abspath(path) for path in sys.argv[1:count + 1]]
    del sys.argv[1:count + 1]
    return taken


def run_program(command, closed=(), before=None, **options):
    """Its status and what it said, when some of its standard files were closed first."""

    def prepare():
        for number in closed:
            os.close(number)
        if before:
            before()

    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 300,
               **options}
    return subprocess.run(command, preexec_fn=prepare if closed or before else None, check=False,
                          **options)


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
    total, reserved = 0, {}
    with open(path, "rb") as file:
        for line in file.read().split(b"\n")[:-1]:  # a crash may be in the middle of the last
            entry = json.loads(line)
            if "reserve" in entry:
                total += entry["reserve"]
                reserved[entry["run"]] = entry["reserve"]
            elif "settle" in entry:
                total += entry["settle"] - reserved.pop(entry["run"])
    return total


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def told(self, done, status, fact):
        """The program ended with the status and one line, which names it and holds the fact."""
        self.assertEqual(done.returncode, status, done)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done)
        self.assertTrue(lines[0].startswith(os.path.basename(done.args[0]) + ": "), done)
        self.assertIn(fact, lines[0])
