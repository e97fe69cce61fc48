"""Trainings of which system calls fail or end their lives, and several at once on one ledger."""

import errno
import os
import re
import shutil
import subprocess

from world import charged, contents, read_tensors, saved_step, state_of

ERRORS = (errno.EIO, errno.ENOSPC, errno.EINTR, errno.EMFILE, errno.EACCES, errno.EROFS)
ACTIONS = [str(number) for number in ERRORS] + [f"{errno.ENOSPC}+", f"{errno.EIO}+", "before",
                                                "after", "torn", "short"]
KILLS = ("before", "after", "torn")
# Nothing is kept of such a call that fails, so that the program may not say that all is well.
KEPT = ("write", "fsync", "fdatasync", "rename", "ftruncate")
CLOSING = re.compile(rb"^test accuracy .*$", re.MULTILINE)
STEPS = 4


class Calls:
    def __init__(self, world):
        self.world = world
        self.lives = world.count or 30

    def run(self):
        first = self.calls_of(self.world.folder())
        for _ in range(self.lives):
            folder = self.world.folder()
            self.chain(folder, first)
            shutil.rmtree(folder)
        for together in range(2, 4):
            self.together(together)
            self.at_once(together)

    def command(self, folder, start):
        files = ["--save-every", "2", "--eval-every", "1", "--ledger-block", "2", "--json",
                 os.path.join(folder, "json")]
        model = os.path.join(folder, "m")
        if os.path.exists(state_of(model)):
            return [self.world.mnist, "--resume", model, "--steps", str(start + STEPS),
                    "--threads", "1", *files]
        return self.world.training("--save", model, *files, steps=STEPS)

    def environment(self, folder, call, action):
        return {"LD_PRELOAD": self.world.preload, "FAILING_FOLDER": folder,
                "FAILING_CALL": str(call), "FAILING_ACTION": action,
                "FAILING_REPORT": os.path.join(self.world.root, "report")}

    def report(self):
        """The calls of the last life, as it told them."""
        path = os.path.join(self.world.root, "report")
        if not os.path.exists(path):
            return ""
        with open(path, encoding="ascii") as file:
            text = file.read()
        os.remove(path)
        return text.strip()

    def calls_of(self, folder):
        self.world.begin("calls are counted")
        done = self.world.run(self.command(folder, 0), **self.environment(folder, 0, ""))
        calls = self.report()
        if done.status != 0 or not calls.isdigit() or int(calls) < 20:
            self.world.wrong(f"the library that counts calls says {calls!r}", done)
            return 1
        return int(calls)

    def chain(self, folder, calls):
        """Some lives that meet a failure, and one that does not, of one run."""
        world = self.world
        model, released, story = os.path.join(folder, "m"), 0, []
        for _ in range(world.random.randrange(1, 4)):
            call, action = world.random.randrange(1, calls + 1), world.random.choice(ACTIONS)
            story.append(f"call {call}: {action}")
            world.begin(f"seed {world.seed}: mnist, " + ", then ".join(story))
            start = saved_step(model)
            done = world.run(self.command(folder, start), killed=action in KILLS,
                             **self.environment(folder, call, action))
            hit = self.report()
            story[-1] += f" ({hit or 'none'})"
            world.case = f"seed {world.seed}: mnist, " + ", then ".join(story)
            released += self.released(done, start)
            self.after(folder, done, start, released)
            self.rescued(done, start)
            if action in map(str, (errno.EIO, errno.ENOSPC)) and hit in KEPT and done.status == 0:
                world.wrong("a failure is passed over", done)
        if not self.can_go_on(model):
            return
        world.begin(f"seed {world.seed}: mnist, " + ", then ".join([*story, "no failure"]))
        start = saved_step(model)
        done = world.run(self.command(folder, start))
        if done.status != 0:
            world.wrong("cannot be resumed", done)
        self.after(folder, done, start, released + self.released(done, start))
        if [name for name in contents(folder) if name.endswith(".tmp")]:
            world.wrong("temporary files are left", done)

    def can_go_on(self, model):
        """Not with a ledger that broke off in its first line: the programs say to remove it."""
        ledger = model + ".ledger"
        if os.path.exists(state_of(model)) or not os.path.exists(ledger):
            return True
        with open(ledger, "rb") as file:
            return b"\n" in file.read()

    def rescued(self, done, start):
        """A model that is said to be saved elsewhere is there, with its state, and no older."""
        alone = re.search(rb"the model of step (\d+)\b.* is saved as (\S+)$", done.err.strip())
        if alone and read_tensors(alone.group(2).decode())[1].get("sotto.privacy") is None:
            self.world.dangerous("a model that was saved alone is none", done)
        told = re.search(rb"it is saved as (\S+m\.rescue[.\d]*)$", done.err.strip())
        if alone or not told:
            return
        name = told.group(1).decode()
        try:
            if saved_step(name) < start or not os.path.exists(name):
                self.world.dangerous("what was saved elsewhere is not whole", done)
        except (ValueError, KeyError) as error:
            self.world.dangerous(f"what was saved elsewhere cannot be read: {error}", done)

    def released(self, done, start):
        """Steps that a life told of: so many releases left it at least."""
        steps = [int(step) for step in re.findall(rb"step (\d+)/", done.out)]
        return max(steps, default=start) - start

    def after(self, folder, done, start, released):
        world, model = self.world, os.path.join(folder, "m")
        if os.path.exists(state_of(model)):
            try:
                step = saved_step(model)
            except (ValueError, KeyError) as error:
                return world.dangerous(f"the checkpoint cannot be read: {error}", done)
            if not os.path.exists(model + ".ledger"):
                return world.dangerous("a checkpoint without its ledger", done)
        if os.path.exists(model + ".ledger") and os.path.getsize(model + ".ledger") > 0:
            whole = open(model + ".ledger", "rb").read().count(b"\n") > 0
            if whole or released > 0:
                world.ledger_counts(model + ".ledger", released)
        if done.status == 0:
            if step != start + STEPS or len(CLOSING.findall(done.out)) != 1:
                world.wrong("status 0, and not all is there", done)
            if not all(os.path.exists(path) for path in (model, os.path.join(folder, "json"))):
                world.wrong("status 0, and an output is lost", done)
        return None

    def at_once(self, count):
        """Two trainings of one name at once: one trains, and the others touch nothing."""
        world = self.world
        folder = world.folder()
        model = os.path.join(folder, "m")
        world.begin(f"{count} processes train one name")
        # Names that share a file with the first one, too.
        names = [model, model, model + ".state"][:count]
        running = [subprocess.Popen(world.training("--save", name, steps=40), stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE) for name in names]
        ended = [(process.communicate(timeout=60), process.returncode) for process in running]
        good = [status == 0 for _, status in ended]
        for (_, err), status in ended:
            if status not in (0, 1, 2) or (status != 0 and err.count(b"\n") != 1):
                world.wrong(f"status {status}: {err!r}")
        # One that begins when another has ended is refused, as its files are there.
        if sum(good) != 1:
            return world.dangerous(f"{sum(good)} of {count} trained")
        saved = names[good.index(True)]
        if set(contents(folder)) != {os.path.basename(saved) + end for end in ("", ".state", ".ledger")}:
            world.dangerous(f"files of several runs: {sorted(contents(folder))}")
        if charged(saved + ".ledger") != 40 or saved_step(saved) != 40:
            world.dangerous("the files do not belong together")
        return None

    def together(self, count):
        """Several lives of one run at once: one goes on, and the others say why they do not."""
        world = self.world
        folder = world.folder()
        model = os.path.join(folder, "m")
        world.begin(f"{count} processes go on with one run")
        world.run(world.training("--save", model, "--quiet"))
        command = [world.mnist, "--resume", model, "--steps", "40", "--threads", "1",
                   "--eval-every", "1"]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                   for _ in range(count)]
        ended = [(process.communicate(timeout=60), process.returncode) for process in running]
        for (_, err), status in ended:
            if status not in (0, 1) or (status == 1 and err.count(b"\n") != 1):
                world.wrong(f"status {status}: {err!r}")
        if not any(status == 0 for _, status in ended):
            world.wrong("none goes on")
        world.ledger_counts(model + ".ledger", saved_step(model))
