"""The parts that the attacks share: the programs, and how they are run and judged."""

import hashlib
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "samples"))
from programs import charged, read_checkpoint, read_tensors, run_program, state_of
from small_pretrained import write_bert

PROGRAMS = ("mnist", "tabular", "images", "text", "embed", "reweight", "audit", "tune", "memory_profile", "memory_tour",
            "privacy_budget", "devices")
HANG = 60  # seconds, of programs that take less than one


class Done:
    """A program that came to its end: status, None for one that did not, and what it said."""

    def __init__(self, command, status, out, err):
        self.command, self.status, self.out, self.err = command, status, out, err


class World:
    def __init__(self, build, seed, count):
        samples = os.path.join(os.path.abspath(build), "samples")
        for name in PROGRAMS:
            setattr(self, name, os.path.join(samples, "sotto-" + name.replace("_", "-")))
        self.preload = os.path.join(os.path.abspath(build), "tests/samples/libfailing_calls.so")
        self.seed, self.count = seed, count
        self.random = random.Random(seed)
        self.attacks = 0
        self.found = {"dangerous": [], "wrong": []}
        self.root = tempfile.mkdtemp(prefix="sotto_attack_")
        self.temporary = self.folder()  # where programs write what they can write nowhere else
        self.case = ""
        self.encoder, self.texts = os.path.join(self.root, "encoder"), os.path.join(self.root, "texts.tsv")
        write_bert(self.encoder, ["a", "film"])
        with open(self.texts, "w", encoding="utf-8") as file:
            file.write("label\ttext\n" + "good\ta film\nbad\tfilm\n" * 10)

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)

    # A training of few steps, in well under a second.
    def training(self, *extra, steps=3):
        return [self.mnist, "--train-size", "200", "--test-size", "20", "--batch-size", "32",
                "--threads", "1", "--noise-multiplier", "2", "--steps", str(steps), *extra]

    def writers(self):
        """Each program that writes files: how it is called, and its options for them."""
        few = ["--train-size", "200", "--test-size", "20", "--batch-size", "32", "--threads", "1",
               "--noise-multiplier", "2", "--steps", "2"]
        trainings = [[self.tabular, "train"], [self.images, "train"], [self.text, "train"],
                     [self.reweight, "--clean", "20", "--clean-batch", "8"]]
        return [
            (self.training(), ("--report", "--json")),
            *[([*command, *few], ("--report", "--json")) for command in trainings],
            ([self.audit, "--train-size", "40", "--batch-size", "8", "--steps", "1", "--canaries", "40",
              "--threads", "1"], ("--report", "--json")),
            ([self.embed, "--init", self.encoder, "--data", self.texts, "--label-column", "label", "--context", "8",
              "--out", os.path.join(self.root, "vectors.csv")], ("--schema",)),
            ([self.memory_profile, "--batch-size", "2", "--threads", "1"], ("--report", "--json")),
            ([self.memory_tour, "--width", "8", "--layers", "2", "--batch-size", "16"],
             ("--report", "--json")),
            ([self.privacy_budget, "spent", "--noise-multiplier", "4", "--sampling-rate", "1",
              "--steps", "2", "--delta", "1e-5"], ("--report",)),
        ]

    def ledger_writers(self):
        """Each program that begins a ledger under any name: how it is called, and what it counts at least."""
        return [
            ([self.audit, "--train-size", "40", "--batch-size", "8", "--steps", "1", "--canaries", "40",
              "--threads", "1"], 1),
            ([self.tune, "--train-size", "80", "--test-size", "20", "--batch-size", "16", "--public-rows", "10", "--steps",
              "1", "--threads", "1", "--noise-multiplier", "2", "--sweep", "2"], 2),
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

        try:
            ended = run_program(command, closed, stdout=stdout, cwd=cwd, text=False, timeout=HANG,
                                env={**os.environ, "TMPDIR": self.temporary, **environment}, pass_fds=pass_fds)
            done = Done(command, ended.returncode, ended.stdout or b"", ended.stderr)
        except subprocess.TimeoutExpired as late:
            done = Done(command, None, late.stdout or b"", late.stderr or b"")
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

    def ledger_counts(self, path, least):
        """A ledger that is there is readable, by us and by the program, and counts enough."""
        try:
            total = charged(path)
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


def saved_step(model):
    """How many steps are behind what was saved; 0 when nothing was."""
    if not os.path.exists(state_of(model)):
        return 0
    return read_checkpoint(model)[1]["step"]
