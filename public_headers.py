#!/usr/bin/env python3
"""Writes the headers as users include them: "core/tensor.h" in them becomes <sotto/core/tensor.h>.

public_headers.txt beside this file lists the public ones. One that only includes others, as autograd/ops.h, is written
with its parts in it. Headers that the public ones need, and that are not public, lie below `detail`.

usage: public_headers.py ROOT FOLDER [--depfile FILE --stamp FILE]
       public_headers.py ROOT --install FOLDER     below the prefix that `meson install` names
       public_headers.py ROOT --check              fails where a page or the first program includes a header that is not
                                                   public, and where headers are more than they may be
       public_headers.py ROOT --self               checks that such faults would be found
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
ANY_INCLUDE = re.compile(r"^[ \t]*#\s*include\s*[<\"].*\n", re.M)
USED = re.compile(r"<sotto/([^<>*]+)>")
DETAIL = "detail/"
NOT_PUBLIC = "// Not for users: other headers of sotto include it.\n"
# Who includes headers as users do.
USERS = ("README.md", "docs", "samples/first_program.cpp", "tests/checks", "tests/consumer")
TEXTS = {".h", ".cpp", ".md"}
MAX_PUBLIC = 80   # headers that are not below `detail`
MAX_CLOSURE = 70  # headers that sotto.h includes, itself included


class Headers:
    """The headers of a tree as they are installed."""

    def __init__(self, root):
        lines = (root / "public_headers.txt").read_text(encoding="utf-8").splitlines()
        self.root = root
        self.listed = [line for line in lines if line and not line.startswith("#")]
        self.texts = {}
        self.whole = {}  # a part -> the public header that holds it
        for path in self.listed:
            self.read(path)
        for path in self.listed:
            if not re.sub(r"//.*|#pragma once|#\s*include.*|\s", "", self.texts.get(path, "-")):
                for part in self.direct(path):
                    if part not in self.listed:
                        self.whole.setdefault(part, path)

    def read(self, path):
        """Reads a header and what it includes."""
        if path not in self.texts and (self.root / path).is_file():
            self.texts[path] = (self.root / path).read_text(encoding="utf-8")
            for name in self.direct(path):
                self.read(name)

    def direct(self, path):
        return [name for _, name in INCLUDE.findall(self.texts[path])]

    def place(self, path):
        """The file below the installed folder in which a header is."""
        path = self.whole.get(path, path)
        return path if path in self.listed else DETAIL + path

    def parts(self, path):
        """The parts of a public header, each behind those that it includes."""
        found = []

        def add(part):
            if self.whole.get(part) == path and part not in found:
                for name in self.direct(part):
                    add(name)
                found.append(part)

        for part in self.direct(path):
            add(part)
        return found

    def installed(self):
        """{place: text}"""
        written = {}
        for path in self.texts:
            if path not in self.whole:
                place = self.place(path)
                written[place] = (NOT_PUBLIC if place.startswith(DETAIL) else "") + self.rewritten(path, self.parts(path))
        return written

    def rewritten(self, path, parts):
        text = self.texts[path]
        if parts:
            included = [line for part in (path, *parts) for line in ANY_INCLUDE.findall(self.texts[part])]
            head, opening, _ = text.partition("#pragma once\n")
            text = head + opening + "\n" + "".join(sorted(set(included), key=lambda line: ('"' in line, line)))
            for part in parts:
                text += "\n" + ANY_INCLUDE.sub("", self.texts[part].replace("#pragma once\n", "", 1))
        lines = INCLUDE.sub(lambda found: f"{found[1]}<sotto/{self.place(found[2])}>", text).splitlines(keepends=True)
        once = [line for k, line in enumerate(lines) if not (line.startswith("#include <sotto/") and line in lines[:k])]
        return re.sub(r"\n{3,}", "\n\n", "".join(line for line in once if line != f"#include <sotto/{path}>\n"))


def includes(text):
    """Of an installed header."""
    return re.findall(r"^#include <sotto/(.*)>", text, re.M)


def closure(installed, first):
    """What a header includes, itself included."""
    found = [first]
    for path in found:
        found += dict.fromkeys(name for name in includes(installed.get(path, "")) if name not in found)
    return found


def cycles(installed):
    """Headers that include themselves by way of others, which parts in one header may bring about."""
    return [path for path in installed if any(path in includes(installed[name]) for name in closure(installed, path)[1:])]


def write(root, folder, detail=True):
    for place, text in Headers(root).installed().items():
        to = folder / place
        if detail or not place.startswith(DETAIL):
            to.parent.mkdir(parents=True, exist_ok=True)
            if not to.is_file() or to.read_text(encoding="utf-8") != text:
                to.write_text(text, encoding="utf-8")


def findings(root, max_public=MAX_PUBLIC, max_closure=MAX_CLOSURE):
    """What is missing in the list, or should not be in it."""
    headers = Headers(root)
    listed, installed = headers.listed, headers.installed()
    yield from (f"public_headers.txt: {path} is listed twice" for path in sorted({p for p in listed if listed.count(p) > 1}))
    yield from (f"public_headers.txt: there is no {path}" for path in listed if path not in headers.texts)
    yield from (f"{path}: is a part of {headers.whole[path]}, and of {whole}, too" for whole in listed if whole in headers.texts
                if whole in headers.whole.values() for path in headers.direct(whole) if headers.whole.get(path, whole) != whole)
    yield from (f"{path}: includes itself, as installed" for path in cycles(installed))
    for user in USERS:
        files = [root / user] if (root / user).is_file() else sorted((root / user).rglob("*"))
        for file in (f for f in files if f.suffix in TEXTS):
            for name in dict.fromkeys(USED.findall(file.read_text(encoding="utf-8"))):
                if name not in listed:
                    yield f"{file.relative_to(root)}: includes {name}, which is not in public_headers.txt"
    if len(listed) > max_public:
        yield f"public_headers.txt: {len(listed)} headers, {max_public} at most"
    if len(closure(installed, "sotto.h")) > max_closure:
        yield f"sotto.h: includes {len(closure(installed, 'sotto.h'))} headers, {max_closure} at most"


def finds_each():
    """Whether each kind of finding is made, in a small tree."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        tree = {
            "public_headers.txt": "# A list.\nsotto.h\ncore/a.h\ncore/none.h\ncore/all.h\n",
            "sotto.h": '#pragma once\n#include "core/a.h"\n#include "core/all.h"\n',
            "core/a.h": '#pragma once\n#include "core/b.h"\nint a;\n',
            "core/b.h": '#pragma once\n#include "core/x.h"\nint b;\n',
            "core/all.h": '#pragma once\n#include "core/y.h"\n#include "core/x.h"\n',
            "core/x.h": '// The first.\n#pragma once\n\n#include <vector>\nint x;\n',
            "core/y.h": '// The second.\n#pragma once\n\n#include "core/x.h"\nint y;\n',
            "docs/s.cpp": "#include <sotto/core/a.h>\n#include <sotto/core/b.h>\n#include <sotto/detail/core/b.h>\n",
        }
        for path, text in tree.items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(text)
        made = Headers(root).installed()
        as_meant = (made["core/all.h"] == "#pragma once\n\n#include <vector>\n\n// The first.\n\nint x;\n\n// The second.\n\nint y;\n"
                    and includes(made["detail/core/b.h"]) == ["core/all.h"] and "core/x.h" not in made)
        found = [finding.split(":")[0] for finding in findings(root, max_public=3, max_closure=3)]
        wanted = ["public_headers.txt", "docs/s.cpp", "docs/s.cpp", "public_headers.txt", "sotto.h"]
        (root / "core/y.h").write_text('#pragma once\n#include "core/a.h"\n')
        return as_meant and found == wanted and "core/all.h: includes itself, as installed" in findings(root)


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
        needed = " ".join(str(root / path).replace(" ", "\\ ") for path in (*Headers(root).texts, "public_headers.txt"))
        options.depfile.write_text(f"{options.stamp}: {needed}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
