"""Every kind of output given to every option that takes one, and every choice of closed files."""

import contextlib
import itertools
import json
import os
import shutil
import socket
import stat
import subprocess

from world import contents

DEVICES = ("/dev/null", "/dev/full", "/dev/stdout", "/dev/stderr", "/dev/fd", "/dev/tty")


def shape(path):
    """The kind of file that a path is, and where it leads."""
    try:
        status = os.lstat(path)
        link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
    except OSError:
        return None
    return stat.S_IFMT(status.st_mode), status.st_rdev, link if "/proc/" not in link else "proc"


def whole(data):
    """True where a page, a ledger or a JSON file is all there."""
    if data.startswith(b'{"sotto_ledger"'):
        return data.endswith(b"\n")
    if data.lstrip().startswith(b"{"):
        with contextlib.suppress(ValueError):
            json.loads(data)
            return True
        return False
    return data.startswith(b"<!DOCTYPE html>") and data.endswith(b"</html>\n")


class Outputs:
    def __init__(self, world):
        self.world = world
        self.saved = world.folder()
        done = world.run(world.training("--save", os.path.join(self.saved, "m"), "--quiet"))
        if done.status != 0:
            world.wrong("cannot train", done)

    # Each puts something at a path, or names one; and says whether the program may use it.
    def kinds(self, folder):
        path = lambda name: os.path.join(folder, name)
        for name in ("m", "m.ledger", "m.state"):
            shutil.copy(os.path.join(self.saved, name), path("other_" + name))
        os.mkdir(path("folder"))
        os.mkfifo(path("fifo"))
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path("socket"))
        for link, target in (("link", "real"), ("dangling", "none"), ("round", "round"),
                             ("to_ledger", "other_m.ledger"), ("to_model", "other_m"),
                             ("to_null", "/dev/null"), ("to_fifo", "fifo")):
            os.symlink(target, path(link))
        for name in ("old", "real"):
            with open(path(name), "w", encoding="utf-8") as file:
                file.write("old\n")
        os.link(path("other_m.ledger"), path("hard_ledger"))
        good = ["absent", "old", "link", "dangling", "to_null", "\udcff\udcfe", "a\nb\x1b[31m"]
        bad = ["folder", "fifo", "to_fifo", "socket", "round", "other_m", "other_m.ledger",
               "other_m.state", "to_ledger", "to_model", "hard_ledger", "no/folder", "old/below",
               "x" * 250, "x" * 300]
        return ([(path(name), True) for name in good] + [(path(name), False) for name in bad] +
                [("/dev/null", True), ("/dev/stdout", True), ("/dev/fd/99", False),
                 ("/proc/self/mem", False), ("/proc/1/fd/1", False), ("/dev/fd/0", False)])

    def run(self):
        for command, options in self.world.writers():
            for option in options:
                folder = self.world.folder()
                for output, usable in self.some(self.kinds(folder), 12):
                    self.output(command, option, output, usable, folder)
                self.full(command, option)
                self.pipe(command, option)
                shutil.rmtree(folder)
        for command, least in self.world.ledger_writers():
            folder = self.world.folder()
            for output, usable in self.some(self.kinds(folder), 12):
                usable = usable and not os.path.lexists(output)
                self.output(command, "--ledger", output, usable, folder)
                if usable:
                    self.world.ledger_counts(output, least)
            shutil.rmtree(folder)
        self.closed()
        self.own_files()

    def some(self, cases, short):
        """All of them, or in the short form so many that are drawn."""
        return cases if self.world.count else self.world.random.sample(cases, short)

    def output(self, command, option, output, usable, folder):
        world = self.world
        world.begin(f"{os.path.basename(command[0])} {option} {output!r}")
        before = {path: shape(path) for path in (*DEVICES, output)}
        kept = {name: data for name, data in contents(folder).items() if "other" in name}
        done = world.run([*command, option, output])
        for path, was in before.items():
            replaced = was is not None and shape(path) != was
            if replaced:
                world.dangerous(f"{path} is replaced", done)
        now = contents(folder)
        for name, data in kept.items():
            if now.get(name) != data:
                world.dangerous(f"{name} is overwritten", done)
        if usable != (done.status == 0):
            world.wrong("refused" if usable else "accepted", done)
        if not usable and done.status == 2 and done.out:
            world.wrong("refused only after something was done", done)
        if done.status == 0 and os.path.isfile(output) and not output.startswith("/dev/"):
            with open(output, "rb") as file:
                if not whole(file.read()):
                    world.wrong("not all of the output is there", done)

    def full(self, command, option):
        world = self.world
        world.begin(f"{os.path.basename(command[0])} {option} /dev/full")
        done = world.run([*command, option, "/dev/full"])
        if done.status != 1 or not done.out:
            world.wrong("an output is lost with status 0, or the text with it", done)
        if not stat.S_ISCHR(os.lstat("/dev/full").st_mode):
            world.dangerous("/dev/full is replaced", done)

    def pipe(self, command, option):
        world = self.world
        world.begin(f"{os.path.basename(command[0])} {option} through a pipe")
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
            number = reader.stdin.fileno()
            done = world.run([*command, option, f"/dev/fd/{number}"], pass_fds=[number],
                             stdout=subprocess.DEVNULL)
            data, _ = reader.communicate()
        if done.status != 0 or not whole(data):
            world.wrong("not all of the output arrived", done)

    # Standard files that are closed, full, or pipes without a reader.
    def closed(self):
        world = self.world
        commands = [[*command] for command, _ in world.writers()] + [[world.devices]]
        commands += [[world.mnist, "--help"], [world.mnist, "--bogus"], [world.devices, "--bogus"]]
        for command in commands:
            choices = [closed for count in range(4)
                       for closed in itertools.combinations((0, 1, 2), count)]
            for closed in self.some(choices, 4):
                folder = world.folder()
                world.begin(f"{os.path.basename(command[0])} without standard files {closed}")
                model = os.path.join(folder, "m")
                saves = command[0] == world.mnist and len(command) > 2
                done = world.run([*command, *(["--save", model] if saves else [])], closed)
                if done.status == 0 and 1 in closed:
                    world.wrong("text is lost with status 0", done)
                if os.path.exists(model + ".ledger"):
                    world.ledger_counts(model + ".ledger", 3 if done.status == 0 else 0)
            for sink in ("full", "unread"):
                self.unread(command, sink)

    def unread(self, command, sink):
        world = self.world
        world.begin(f"{os.path.basename(command[0])} into a {sink} standard output")
        if sink == "full":
            writing = os.open("/dev/full", os.O_WRONLY)
        else:
            reading, writing = os.pipe()
            os.close(reading)
        done = world.run(command, stdout=writing)
        os.close(writing)
        if done.status == 0:
            world.wrong("text is lost with status 0", done)

    # A page must not be one of the run's own files, there or to be written, by name or by link.
    def own_files(self):
        world = self.world
        for option, name in itertools.product(("--report", "--json"),
                                              ("m", "m.ledger", "m.state", "link")):
            folder = world.folder()
            model = os.path.join(folder, "m")
            os.symlink("m.ledger", os.path.join(folder, "link"))
            for first in (["--save", model], ["--resume", model]):
                world.begin(f"mnist {first[0]} with {option} {name}")
                if first[0] == "--resume":
                    world.run(world.training("--save", model, "--quiet"))
                    before = contents(folder)
                command = [world.mnist] if first[0] == "--resume" else world.training()
                done = world.run([*command, *first, option, os.path.join(folder, name)])
                if done.status != 2:
                    world.dangerous("is not refused", done)
                if first[0] == "--resume" and contents(folder) != before:
                    world.dangerous("files have changed", done)
