#!/usr/bin/env python3
"""Writes the public headers as users include them: "core/tensor.h" in them becomes <sotto/core/tensor.h>.

public_headers.txt beside this file lists them.

usage: public_headers.py ROOT FOLDER [--depfile FILE --stamp FILE]
       public_headers.py ROOT --install FOLDER     below the prefix that `meson install` names
       public_headers.py ROOT --check              fails where a public header, a sample or a page includes another one
       public_headers.py ROOT --self               checks that such an include would be found
"""
import argparse
import os
import pathlib
import re
import sys
import tempfile

LAYERS = ("core", "kernels", "autograd", "nn", "memory", "multilevel", "dp")
OURS = r"(?:(?:" + "|".join(LAYERS) + r")/[^\">]+|sotto\.h)"
INCLUDE = re.compile(r'^(\s*#\s*include\s*)"(' + OURS + ')"', re.M)
USED = re.compile(r"^\s*#\s*include\s*<sotto/(" + OURS + ")>", re.M)
# Who includes headers as users do.
USERS = ("README.md", "docs", "samples", "tests/checks", "tests/consumer")
TEXTS = {".h", ".cpp", ".md"}


def public(root):
    """Paths of the headers, from the root."""
    lines = (root / "public_headers.txt").read_text(encoding="utf-8").splitlines()
    return [pathlib.PurePosixPath(line) for line in lines if line and not line.startswith("#")]


def write(root, folder):
    for path in public(root):
        to = folder / path
        to.parent.mkdir(parents=True, exist_ok=True)
        text = INCLUDE.sub(r"\1<sotto/\2>", (root / path).read_text(encoding="utf-8"))
        if not to.is_file() or to.read_text(encoding="utf-8") != text:
            to.write_text(text, encoding="utf-8")


def findings(root):
    """What is missing in the list, or should not be in it."""
    listed = [path.as_posix() for path in public(root)]
    yield from (f"public_headers.txt: {path} is listed twice" for path in sorted({p for p in listed if listed.count(p) > 1}))
    for path in listed:
        if not (root / path).is_file():
            yield f"public_headers.txt: there is no {path}"
            continue
        for _, name in INCLUDE.findall((root / path).read_text(encoding="utf-8")):
            if name not in listed:
                yield f"{path}: is public and includes {name}, which is not in public_headers.txt"
    for user in USERS:
        files = [root / user] if (root / user).is_file() else sorted((root / user).rglob("*"))
        for file in (f for f in files if f.suffix in TEXTS):
            for name in USED.findall(file.read_text(encoding="utf-8")):
                if name not in listed:
                    yield f"{file.relative_to(root)}: includes {name}, which is not in public_headers.txt"


def finds_each():
    """Whether each kind of finding is made, in a small tree."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in {"public_headers.txt": "# A list.\ncore/a.h\ncore/none.h\n",
                           "core/a.h": '#include "core/b.h"\n', "core/b.h": "",
                           "samples/s.cpp": "#include <sotto/core/a.h>\n#include <sotto/core/b.h>\n"}.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(text)
        return [finding.split(":")[0] for finding in findings(root)] == ["core/a.h", "public_headers.txt", "samples/s.cpp"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--install", type=pathlib.Path)
    parser.add_argument("--depfile", type=pathlib.Path)
    parser.add_argument("--stamp", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self", action="store_true")
    options = parser.parse_args()
    root = options.root.resolve()
    if options.self:
        return 0 if finds_each() else 1
    if options.check:
        found = list(findings(root))
        for finding in found:
            print(finding)
        return 1 if found else 0
    write(root, options.folder or pathlib.Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / options.install)
    if options.stamp:
        options.stamp.write_text("// The headers were written.\n")
        needed = " ".join(str(root / path).replace(" ", "\\ ") for path in (*public(root), "public_headers.txt"))
        options.depfile.write_text(f"{options.stamp}: {needed}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
