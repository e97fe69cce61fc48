#!/usr/bin/env python3
"""Names of our interface in README.md, CONTRIBUTING.md and docs (but docs/appendix) exist in the sources.

Of text in backquotes, and of the prose's alone, these are looked up: words in CamelCase, calls as `make_sampler(`, what is
qualified as `ClipRule::Kind` or `nn::linear`, members as `.target_epsilon` and `policy.hard_limit`, and words that
stand alone, with an underscore or a capital. The parts of a name have to stand in one source, as whole words outside of
comments; of a member, its own name.

usage: docs_names.py ROOT            prints page:line: name for each that does not, and fails
       docs_names.py ROOT --self     checks that such would be found
"""
import pathlib
import re
import sys
import tempfile

import page_check

FOLDERS = ("core", "kernels", "autograd", "nn", "memory", "multilevel", "dp", "samples", "tests")
CPP = {".h", ".cpp", ".cu", ".cuh"}
SOURCES = CPP | {".py", ".sh", ".build"}
# Names of other software: Opacus and PyTorch, CMake, the system. In the order of the alphabet.
OTHERS = {
    "AdaClipDPOptimizer", "BatchMemoryManager", "DPDataLoader", "DistributedDPOptimizer",
    "DistributedPerLayerOptimizer", "DistributedSampler", "FSDPOptimizerFastGradientClipping", "ModuleValidator",
    "PrivacyEngine", "SimpleDistributedPerLayerOptimizer", "accumulated_iterations", "find_package", "get_epsilon",
    "grad_clip_scheduler", "make_private", "make_private_with_epsilon", "noise_scheduler", "register_grad_sampler",
    "requires_grad", "secure_mode", "unclipped_num_std", "vfork",
}
# Programs that are named by loops of meson.build.
LOOPS = re.compile(r"^bench_")
QUOTED = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"(?:\b[A-Za-z_]\w*::)+~?[A-Za-z_]\w*"     # qualified
                  r"|\b[A-Za-z_]\w*(?=\()"                   # called
                  r"|(?<![\w.\-/])\.[a-z]\w*_\w+"            # a designator
                  r"|\b[a-z]\w*\.[a-z]\w*_\w+"               # a member
                  r"|^[a-z]\w*_\w+$"                          # alone, with an underscore
                  r"|^[A-Z][a-z]\w*$"                          # alone, with a capital
                  r"|\b[A-Z][a-z0-9]+(?:[A-Z][A-Za-z0-9]*)+\b")  # in CamelCase
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def pages(root):
    found = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in found if page.exists() and page.relative_to(root).parts[:2] != ("docs", "appendix")]


def words(root):
    """The words of each source, without what comments of C++ say."""
    found = [OTHERS, set(re.findall(r"\w+", (root / "meson_options.txt").read_text(encoding="utf-8")))]
    for folder in FOLDERS:
        for path in (root / folder).rglob("*"):
            if path.suffix in SOURCES and not path.name.startswith("docs_"):
                text = path.read_text(encoding="utf-8", errors="replace")
                found.append(set(re.findall(r"\w+", COMMENT.sub("", text) if path.suffix in CPP else text)))
    return found


def names(text):
    """Line and name of each in the prose of a page."""
    text = re.sub(r"^```.*?^```$", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S | re.M)
    for number, line in enumerate(text.splitlines(), 1):
        for quoted in QUOTED.findall(line):
            for name in NAME.findall(quoted):
                yield number, name


def problems(root):
    sources = words(root)
    for page in pages(root):
        for number, name in names(page.read_text(encoding="utf-8")):
            parts = set(re.findall(r"\w+", LOOPS.sub("", name.split(".")[-1])))
            if not name.startswith("std::") and not any(parts <= source for source in sources):
                yield f"{page.relative_to(root)}:{number}: {name}"


def check_itself():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs/appendix").mkdir(parents=True)
        (root / "core").mkdir()
        (root / "meson_options.txt").write_text("")
        (root / "core/x.h").write_text("struct OneThing { int a_member; void a_call(); };  // OldThing, old_call()\n")
        (root / "core/y.h").write_text("struct OtherThing { int another; };\n")
        (root / "README.md").write_text("`OneThing::a_member`, `a_call()`, `.a_member = 1` OldThing old_call()\n")
        (root / "docs/appendix/a.md").write_text("`OldThing`\n")
        if found := list(problems(root)):
            return found
        old = ["OldThing", "OneThing::old_member", "OneThing::another", "old_call", ".old_member", "x.old_member"]
        (root / "docs/b.md").write_text("".join(f"`{name}(1)`\n" if name == "old_call" else f"`{name}`\n" for name in old))
        expected = [f"docs/b.md:{number}: {name}" for number, name in enumerate(old, 1)]
        found = list(problems(root))
        return [] if found == expected else found or ["nothing found"]


if __name__ == "__main__":
    sys.exit(page_check.run(__doc__, problems, check_itself))
