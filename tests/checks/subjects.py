#!/usr/bin/env python3
"""Checks that the subjects of commits have at most 72 characters; prints those that have more, and fails on any.

usage: subjects.py ROOT              commits since the rule is checked; none without a history, as in an archive
       subjects.py --message FILE    the message of a commit that is being made
       subjects.py --self            checks that a long subject would be found
"""
import pathlib
import subprocess
import sys

MAX_LENGTH = 72
CHECKED_SINCE = "2026-11-25T08:00:00Z"


def too_long(subjects):
    return [f"{len(subject)} characters, {MAX_LENGTH} at most: {subject}" for subject in subjects if len(subject) > MAX_LENGTH]


def subjects_of(root):
    command = ["git", "-C", root, "log", "--no-merges", f"--since={CHECKED_SINCE}", "--format=%s"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def main(arguments):
    if arguments == ["--self"]:
        return 0 if len(too_long(["x" * 72, "ä" * 72, "x" * 73])) == 1 else 1
    if len(arguments) == 2 and arguments[0] == "--message":
        found = too_long(pathlib.Path(arguments[1]).read_text(encoding="utf-8").splitlines()[:1])
    elif len(arguments) == 1:
        found = too_long(subjects_of(arguments[0]))
    else:
        sys.exit(__doc__)
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
