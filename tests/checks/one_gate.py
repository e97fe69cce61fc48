#!/usr/bin/env python3
"""Checks that CI runs the commands that the README begins with, as they stand there and in their order.

usage: one_gate.py ROOT [--self]     --self checks that a difference would be found
"""
import pathlib
import re
import sys

BLOCK = re.compile(r"## Try it\n.*?```sh\n(.*?)```", re.S)


def commands(text):
    """The lines of a shell script without comments, indentation and empty lines."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def findings(readme, ci):
    block = BLOCK.search(readme)
    promised = commands(block[1]) if block else []
    if not promised:
        return ["README.md: no commands under \"Try it\""]
    run = [line for line in commands(ci) if line in promised]
    return [] if run == promised else [f".ci/run runs {run}, where README.md says {promised}"]


def check_self():
    readme = "# x\n## Try it\n\n```sh\n./a.sh   # says why\n./b.sh\n```\n"
    assert findings(readme, "#!/bin/sh\nset -e\n./a.sh\n./b.sh\n") == []
    for ci in ("./a.sh\n", "./b.sh\n./a.sh\n", "./a.sh\nX=1 ./b.sh\n", "./a.sh\n# ./b.sh\n"):
        assert findings(readme, ci), ci
    assert findings("# x\n", "./a.sh\n")


def main(root, *options):
    if options == ("--self",):
        return check_self()
    root = pathlib.Path(root)
    found = findings(*((root / name).read_text(encoding="utf-8") for name in ("README.md", ".ci/run")))
    print(*found, sep="\n", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
