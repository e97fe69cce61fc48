#!/usr/bin/env python3
"""Texts of errors that docs/how-to/errors-and-starting-over.md quotes stand in the sources: of its
items all that is in backquotes before the first colon is a part of one string there, with "…" for a value.

usage: docs_errors.py ROOT           prints page:line: text for each that does not, and fails
       docs_errors.py ROOT --self    checks that such would be found
"""
import pathlib
import re
import sys
import tempfile

import page_check

PAGE = "docs/how-to/errors-and-starting-over.md"
FOLDERS = ("core", "kernels", "autograd", "nn", "memory", "dp", "samples")
# Neighbouring literals are one string.
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
JOINT = re.compile(r'"\s*\n\s*"')


def strings(root):
    """All strings of the sources, with "…" for what is formatted into them."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                text = JOINT.sub("", path.read_text(encoding="utf-8"))
                yield from (re.sub(r"\{[^{}]*\}", "…", s).replace('\\"', '"') for s in LITERAL.findall(text))


def quoted(page):
    """Line and text of what the items quote before their first colon, also over several lines."""
    for item in re.finditer(r"^- (?:`[^`]+`(?:,\s+(?:with )?)?)+:", page, re.M):
        for text in re.findall(r"`([^`]+)`", item.group(0)):
            yield page.count("\n", 0, item.start()) + 1, text


def problems(root):
    known = list(strings(root))
    for number, text in quoted((root / PAGE).read_text(encoding="utf-8")):
        if text != "File exists" and not any(text in string for string in known):
            yield f"{PAGE}:{number}: {text}"


def check_itself():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / PAGE).parent.mkdir(parents=True)
        (root / "dp").mkdir()
        (root / "dp/x.cpp").write_text('fail("two {} of \\"{:.3g}\\" "\n     "words", "three");\n')
        (root / PAGE).write_text('- `two … of "…" words`,\n  `three`: `no`\n- `no`\n')
        if found := list(problems(root)):
            return found
        (root / PAGE).write_text("text\n- `words three`: x\n")
        found = list(problems(root))
        return [] if found == [f"{PAGE}:2: words three"] else found or ["nothing found"]


if __name__ == "__main__":
    sys.exit(page_check.run(__doc__, problems, check_itself))
