#!/usr/bin/env python3
"""Writes the public headers as users include them: "core/tensor.h" in them becomes <sotto/core/tensor.h>.

usage: public_headers.py ROOT FOLDER [--depfile FILE --stamp FILE]
       public_headers.py ROOT --install FOLDER     below the prefix that `meson install` names
"""
import argparse
import os
import pathlib
import re

LAYERS = ("core", "kernels", "autograd", "nn", "memory", "dp")
# What no public header reaches: precompiled headers, and the kernels' own.
PRIVATE = ("core/pch", "kernels/cpu", "kernels/cuda")
INCLUDE = re.compile(r'^(\s*#\s*include\s*)"((?:' + "|".join(LAYERS) + r')/[^"]+)"', re.M)


def public(root):
    """Paths of the headers, from the root."""
    yield pathlib.Path("sotto.h")
    for layer in LAYERS:
        for header in sorted((root / layer).rglob("*.h")):
            path = header.relative_to(root)
            if not path.as_posix().startswith(PRIVATE):
                yield path


def write(root, folder):
    for path in public(root):
        to = folder / path
        to.parent.mkdir(parents=True, exist_ok=True)
        text = INCLUDE.sub(r"\1<sotto/\2>", (root / path).read_text(encoding="utf-8"))
        if not to.is_file() or to.read_text(encoding="utf-8") != text:
            to.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--install", type=pathlib.Path)
    parser.add_argument("--depfile", type=pathlib.Path)
    parser.add_argument("--stamp", type=pathlib.Path)
    options = parser.parse_args()
    root = options.root.resolve()
    folder = options.folder or pathlib.Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / options.install
    write(root, folder)
    if options.stamp:
        options.stamp.write_text("// The headers were written.\n")
        needed = " ".join(str(root / path).replace(" ", "\\ ") for path in public(root))
        options.depfile.write_text(f"{options.stamp}: {needed}\n")


if __name__ == "__main__":
    main()
