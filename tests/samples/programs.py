"""Shared by the tests of programs: starting a program, reading its messages and the files that it leaves."""

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib


def take_programs(count):
    """The paths in the first arguments; the arguments behind them belong to unittest."""
    if len(sys.argv) <= count:
        sys.exit(sys.modules["__main__"].__doc__)
    taken = [os.path.abspath(path) for path in sys.argv[1:count + 1]]
    del sys.argv[1:count + 1]
    return taken


# Where programs write what they can write nowhere else; removed at the end.
ELSEWHERE = tempfile.TemporaryDirectory()


def run_program(command, closed=(), before=None, **options):
    """Runs a program, with some of its standard files closed first; returns its status and output."""

    def prepare():
        for number in closed:
            os.close(number)
        if before:
            before()

    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 300,
               "env": {**os.environ, "TMPDIR": ELSEWHERE.name}, **options}
    return subprocess.run(command, preexec_fn=prepare if closed or before else None, check=False,
                          **options)


def read_tensors(path):
    """The tensors as (dtype, shape, bytes), and the metadata; this reader is independent of the library."""
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


def png(pixels):
    """A PNG file (third edition, section 11.2) of rows of red, green and blue bytes."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", len(pixels[0]) // 3, len(pixels), 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(row) for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def state_of(model):
    """The training checkpoint that belongs to the saved `model`."""
    return model + ".state"


def read_checkpoint(model):
    """The tensors of the training checkpoint of `model`, and the program's section with the ledger's position."""
    tensors, metadata = read_tensors(state_of(model))
    section = json.loads(metadata["sotto.program"])
    section["ledger"] = json.loads(metadata.get("sotto.ledger_mark", "null"))
    return tensors, section


def charged(path):
    """The releases that a ledger counts: a reservation counts in full unless its run settles it."""
    total, reserved = 0, {}
    with open(path, "rb") as file:
        for line in file.read().split(b"\n")[:-1]:  # a crash may truncate the last line
            entry = json.loads(line)
            if "reserve" in entry:
                total += entry["reserve"]
                reserved[entry["run"]] = entry["reserve"]
            elif "settle" in entry:
                total += entry["settle"] - reserved.pop(entry["run"])
    return total


@contextlib.contextmanager
def held(name):
    """The lock of a saved name, as another training holds it."""
    path = name + ".lock"
    with open(path, "wb") as file:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        yield
        os.remove(path)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def told(self, done, status, fact):
        """Checks that the program ended with the status and one line, which names it and contains the fact."""
        self.assertEqual(done.returncode, status, done)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done)
        self.assertTrue(lines[0].startswith(os.path.basename(done.args[0]) + ": "), done)
        self.assertIn(fact, lines[0])


class TrainingCase(Case):
    """Runs a program that has the command `train`, on one thread: tests that run beside each other share the cores."""

    program = ""  # its path

    def call(self, *arguments):
        return run_program([self.program, *arguments])

    def train(self, *arguments):
        done = self.call("train", *arguments, "--threads", "1")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout

    def facts(self, *arguments):
        """The JSON report of a run."""
        self.train(*arguments, "--json", self.path("run.json"), "--quiet")
        with open(self.path("run.json"), encoding="utf-8") as file:
            return json.load(file)

    def refused(self, message, *arguments):
        """The run ends with status 2 or 1 and one line, and leaves no file."""
        before = sorted(os.listdir(self.folder))
        done = self.call(*arguments)
        self.assertIn(done.returncode, (1, 2), arguments)
        self.assertEqual("", done.stdout)
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertRegex(done.stderr, message)
        self.assertEqual(before, sorted(os.listdir(self.folder)))


class WithCommands:
    """Tests of every program with commands, for a TrainingCase."""

    commands = ()  # their names

    def test_a_broken_model_is_a_failure_and_no_wrong_argument(self):
        broken = self.path("broken")
        with open(broken, "wb") as file:
            file.write(bytes(range(256)) * 9)
        done = self.call("evaluate", "--model", broken, "--data", broken)
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertIn("broken: not a model of this program", done.stderr)

    def test_commands(self):
        self.refused("no command")
        self.refused("no command is called fly", "fly")
        done = self.call("--help")
        self.assertEqual(0, done.returncode)
        for command in self.commands:
            self.assertIn("\n  " + command, done.stdout)
            self.assertEqual(0, self.call(command, "--help").returncode)
