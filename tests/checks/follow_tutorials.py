#!/usr/bin/env python3
"""Follows the tutorials to the letter, in a fresh clone: writes each file that a page names, runs each command in order,
and compares what is printed with what the page shows. Fails where a command fails or prints something else.

Kinds of blocks are those of docs_snippets.py; here `follow NAME...` is run, too, and a program must say its file. Where the
files and folders NAME are neither in the clone nor in $SOTTO_SHARED/data (../shared/data if unset), gzipped or not, nor in
$SOTTO_PRETRAINED (where fetch_pretrained.py puts weights, if unset), a block is skipped, with a word; `fetch` is never run.

usage: follow_tutorials.py ROOT [--folder CLONE] [--pages WORD...]
         --folder CLONE    clone to this folder, or go on in it, and keep it
         --pages WORD...   only tutorials whose names contain a WORD
"""
import argparse
import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import docs_snippets

# Kinds that a tutorial may not have, since nobody could follow them.
UNFOLLOWED = {"cpp": ("", "compile", "declare", "quote"), "sh": ("parse",), "console": ("parse",)}


class Follower:
    """A reader in a clone, who has some folders of data."""

    def __init__(self, clone, *folders):
        self.clone, self.folders, self.output = clone, folders, ""

    def run(self, command):
        """Runs a command; what went wrong. What a terminal would show is kept."""
        done = subprocess.run(["sh", "-euc", command], cwd=self.clone, text=True, stdin=subprocess.DEVNULL, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.output = done.stdout
        return f"status {done.returncode} of\n{command}{done.stdout}" if done.returncode else ""

    def has(self, name):
        """Whether the clone has a file or folder, or gets it: from the data, where it may be gzipped."""
        target = self.clone / name
        for data in self.folders:
            for found in [*data.glob(name), *data.glob(f"*/{name}")]:
                if not target.exists():
                    target.symlink_to(found)
            for packed in [] if target.exists() else data.glob(f"*/{name}.gz"):
                with gzip.open(packed) as source, open(target, "wb") as unpacked:
                    shutil.copyfileobj(source, unpacked)
        return target.exists()

    def shows(self, expected, share):
        return "" if docs_snippets.printed_as(expected, self.output, share) else f"printed was:\n{self.output}"

    def session(self, command, expected):
        return self.run(command) or self.shows(expected.rstrip("\n") + "\n", 0)

    def follow(self, block):
        """What is wrong with a block; None where it was skipped."""
        if block.mark in UNFOLLOWED.get(block.language, ()):
            return f"nobody can follow {block.language} with the mark \"{block.mark}\""
        if block.is_program():
            (self.clone / block.arguments[0]).write_text(block.text, encoding="utf-8")
        elif block.mark == "follow" and not all(map(self.has, block.arguments)):
            return None
        elif block.mark in ("run", "follow"):
            return self.run(block.text)
        elif block.mark == "output":
            return self.shows(block.text, block.share())
        elif block.language == "console":
            return "\n".join(filter(None, (self.session(*each) for each in docs_snippets.sessions(block.text))))
        return ""


def follow_page(follower, page, name):
    """Follows a page to its end, and returns what was wrong."""
    problems, skipped = [], False
    for block in docs_snippets.blocks(name, page.read_text(encoding="utf-8")):
        if skipped and block.mark == "output":  # of the command that was skipped
            continue
        start = time.monotonic()
        problem = follower.follow(block)
        skipped = problem is None
        if skipped:
            print(f"skipped: {block.where()}: no {' or '.join(block.arguments)} in "
                  f"{' or '.join(map(str, follower.folders))}")
        elif block.mark in ("run", "follow"):
            print(f"{block.where()}: {time.monotonic() - start:.0f} s", flush=True)
        if problem:
            problems.append(f"{block.where()}: {problem}")
            print(problems[-1], flush=True)
    return problems


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--pages", nargs="*", default=[""])
    given = parser.parse_args()
    root = given.root.resolve()
    data = pathlib.Path(os.environ.get("SOTTO_SHARED") or root / "../shared").resolve() / "data"
    weights = pathlib.Path(os.environ.get("SOTTO_PRETRAINED") or "~/.cache/sotto/pretrained").expanduser().resolve()
    with tempfile.TemporaryDirectory() as scratch:
        clone = (given.folder or pathlib.Path(scratch) / "sotto").resolve()
        if not clone.exists():
            subprocess.run(["git", "clone", "--quiet", root, clone], check=True)
        problems = []
        for page in sorted((clone / "docs/tutorials").glob("*.md")):
            if any(word in page.name for word in given.pages):
                problems += follow_page(Follower(clone, data, weights), page, page.relative_to(clone).as_posix())
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
