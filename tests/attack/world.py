"""The parts that the attacks share: the programs, and how they are run and judged."""

import hashlib
import json
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import tempfile

PROGRAMS = ("mnist", "audit", "footprint", "memory_tour", "privacy_budget", "devices")
HANG = 60  # seconds, of programs that take less than one


class Done:
    """A program that came to its end: status, None for one that did not, and what it said."""

    def __init__(self, command, status, out, err):
        self.command, self.status, self.out, self.err = command, status, out, err


class World:
    def __init__(self, build, seed, count):
        samples = os.path.join(os.path.abspath(build), "samples")
        for name in PROGRAMS:
            setattr(self, name, os.path.join(samples, name))
        self.preload = os.path.join(os.path.abspath(build), "tests", "libfailing_calls.so")
        self.seed, self.count = seed, count
        self.random = random.Random(seed)
        self.attacks = 0
        self.found = {"dangerous": [], "wrong": []}
        self.root = tempfile.mkdtemp(prefix="sotto_attack_")
        self.case = ""

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)

    # A training of few steps, in well under a second.
    def training(self, *extra, steps=3):
        return [self.mnist, "--train-size", "200", "--test-size", "20", "--batch", "32",
                "--threads", "1", "--noise-multiplier", "2", "--steps", str(steps), *extra]

    def writers(self):
        """Each program that writes files: how it is called, and its options for them."""
        return [
            (self.training(), ("--report", "--json")),
            ([self.audit, "--train-size", "40", "--batch", "8", "--steps", "1", "--canaries", "40",
              "--threads", "1"], ("--report", "--json")),
            ([self.footprint, "--batch", "2", "--threads", "1"], ("--html", "--json")),
            ([self.memory_tour, "--width", "8", "--layers", "2", "--batch", "16"],
             ("--report", "--json")),
            ([self.privacy_budget, "spent", "--noise-multiplier", "4", "--sampling-rate", "1",
              "--steps", "2", "--delta", "1e-5"], ("--html",)),
        ]

    def folder(self):
        return tempfile.mkdtemp(dir=self.root)

    def begin(self, case):
        """The attack that is made next, in words by which it can be made again."""
        self.attacks += 1
        self.case = case

    def fail(self, kind, what, done=None):
        text = f"{kind}: {self.case}: {what}"
        if done is not None:
            text += f"\n  status {done.status}: {done.command}\n  {done.err[-500:]!r}"
        self.found[kind].append(text)
        print(text, flush=True)

    def dangerous(self, what, done=None):
        self.fail("dangerous", what, done)

    def wrong(self, what, done=None):
        self.fail("wrong", what, done)

    def run(self, command, closed=(), killed=False, pass_fds=(), stdout=subprocess.PIPE, cwd=None,
            **environment):
        """Runs a program with some standard files closed, and says what no program may do: hang,
        die by a signal, fail in other words than one line, or warn when all is well."""

        def close_files():
            for number in closed:
                os.close(number)

        with subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, cwd=cwd,
                              env={**os.environ, **environment}, pass_fds=pass_fds,
                              preexec_fn=close_files) as process:
            try:
                out, err = process.communicate(timeout=HANG)
                done = Done(command, process.returncode, out or b"", err)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                done = Done(command, None, out or b"", err)
        self.judge(done, closed, killed)
        return done

    def judge(self, done, closed, killed):
        if killed and done.status == -signal.SIGKILL:
            return
        if done.status is None:
            self.wrong("hangs", done)
        elif done.status < 0:
            self.wrong(f"dies by signal {-done.status}", done)
        elif done.status > 3 and done.status < 128:
            self.wrong("a status that means nothing", done)
        elif 2 not in closed:
            lines = done.err.splitlines()
            name = os.path.basename(done.command[0]).encode()
            told = len(lines) == 1 and lines[0].startswith(name + b": ")
            if done.status in (1, 2) and not told:
                self.wrong("fails, and not in one line that names the program", done)
            if done.status == 0 and lines:
                self.wrong("says something is wrong with status 0", done)

    # A ledger as a file, by our own reading of the format.
    def charged(self, path):
        """Releases that a ledger counts: reservations whole, unless their run settles them."""
        total, reserved = 0, {}
        with open(path, "rb") as file:
            for line in file.read().split(b"\n")[:-1]:
                entry = json.loads(line)
                if "reserve" in entry:
                    total += entry["reserve"]
                    reserved[entry["run"]] = entry["reserve"]
                elif "settle" in entry:
                    total += entry["settle"] - reserved.pop(entry["run"])
        return total

    def ledger_counts(self, path, least):
        """A ledger that is there is readable, by us and by the program, and counts enough."""
        try:
            total = self.charged(path)
        except (ValueError, KeyError) as error:
            return self.dangerous(f"the ledger cannot be read: {error}")
        if total < least:
            self.dangerous(f"the ledger counts {total} releases of {least}")
        if total == 0:
            return None
        spent = self.run([self.privacy_budget, "spent", "--ledger", path, "--delta", "1e-5"])
        if spent.status != 0:
            self.dangerous("the ledger cannot be read", spent)
        return None


def contents(folder):
    """The bytes of every regular file of a folder."""
    found = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if stat.S_ISREG(os.lstat(path).st_mode):
            with open(path, "rb") as file:
                found[name] = hashlib.sha256(file.read()).hexdigest()
    return found


def state_of(model):
    """The file from which what was saved as `model` is gone on with."""
    return model + ".state"


def saved_step(model):
    """How many steps are behind what was saved; 0 when nothing was."""
    if not os.path.exists(state_of(model)):
        return 0
    with open(state_of(model), "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        metadata = json.loads(file.read(length))["__metadata__"]
    return json.loads(metadata["sotto.mnist.progress"])["step"]
