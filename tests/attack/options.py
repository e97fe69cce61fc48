"""Every option of every program with values that it was not made for."""

import os
import re
import subprocess

# Nothing, less, none, no number, no end, more than any type holds, words, bytes, another notation.
VALUES = ("", "-1", "0", "nan", "inf", "-inf", "1e-320", "1e308", "99999999999999999999", "x",
          "--", "é", "\udcff", " ", "1 2", "1,2", "0x10", "1e", "a\nb", "%s%n", "9" * 400)
LEDGER = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "../fuzz/ledger_corpus/ledger.jsonl")
SHORT = 150  # of some thousand cases


class Options:
    def __init__(self, world):
        self.world = world
        self.cases = []  # what is called, with what, and the statuses that it may end with
        self.folder = world.folder()  # where files land that are called like the values

    def run(self):
        world = self.world
        commands = [command for command, _ in world.writers()]
        commands += [[world.privacy_budget, verb] for verb in ("noise", "steps", "batch", "compare")]
        commands += [[world.privacy_budget, "inspect", LEDGER]]
        for command in commands:
            program = command[:1] if command[1:2] == [] or command[1].startswith("-") else command[:2]
            base = command if len(command) > 2 else [*command, "--delta", "1e-5"]
            for option, takes_value in self.options_of(program):
                self.option(base, option, takes_value)
            self.add(base, ["--bogus"], (2,))
            self.add(base, ["bogus"], (2,))
        self.add([world.devices], ["x"], (2,))
        some = min(len(self.cases), world.count * 2 or SHORT)
        for case in world.random.sample(self.cases, some):
            self.attack(*case)

    def options_of(self, program):
        text = subprocess.run([*program, "--help"], stdout=subprocess.PIPE, check=True).stdout
        found = re.findall(r"^  (?:-\w,)?(--[\w-]+)( \S+)?", text.decode(), re.MULTILINE)
        return [(name, bool(rest)) for name, rest in found if name != "--help"]

    def option(self, base, option, takes_value):
        """The option in the place of the one that the command had, if it had it."""
        command = list(base)
        if option in command:
            at = command.index(option)
            del command[at:at + 2]
        if not takes_value:
            self.add(command, [option, option], (2,))
            self.add(command, [f"{option}="], (2,))
            self.add(command, [f"{option}=x"], (2,))
            return
        for value in VALUES:
            self.add(command, [option, value], (2,) if value == "" else (0, 1, 2))
            self.add(command, [f"{option}={value}"], (2,) if value == "" else (0, 1, 2))
        self.add(command, [option], (2,))
        if not takes_many(base, option):
            self.add(command, [option, "1", option, "1"], (2,))

    def add(self, command, arguments, allowed):
        self.cases.append((command, arguments, allowed))

    def attack(self, command, arguments, allowed):
        world = self.world
        world.begin(f"{' '.join(os.path.basename(part) for part in command[:2])} {arguments!r}")
        done = world.run([*command, *arguments], cwd=self.folder)
        if done.status not in (None, *allowed) and done.status >= 0:
            world.wrong("accepted" if done.status == 0 else "another status than 2", done)


def takes_many(command, option):
    return "privacy_budget" in command[0] and option in ("--delta", "--epsilon", "--phase")
