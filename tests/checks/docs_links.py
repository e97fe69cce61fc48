#!/usr/bin/env python3
"""Links, anchors and paths in README.md, CONTRIBUTING.md and docs lead somewhere, and so do the pages that sources name,
and the sections of them: docs/appendix/x.md, section 5; docs/appendix/x.md, "The noise".

usage: docs_links.py ROOT            prints each that does not, and fails
       docs_links.py ROOT --self     checks that such would be found
"""
import pathlib
import re
import sys
import tempfile

import page_check

FOLDERS = "core|kernels|autograd|nn|memory|multilevel|dp|samples|tests|docs"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# Files of a picture that has a light and a dark one.
PICTURE = re.compile(r'<(?:img|source)[^>]* src(?:set)?="([^"]+)"')
# Files of the tree in backquotes: `dp/engine/engine.h`.
QUOTED = re.compile(rf"`((?:{FOLDERS})/[\w./-]+\.\w+)`")
PAGE = re.compile(r"\bdocs/[\w./-]+\.(?:md|svg)\b")
SECTION = re.compile(r"\b(docs/[\w./-]+\.md), (?:section (\d+)|\\?\"([^\"\\]+))")
SOURCES = ("*.h", "*.cpp", "*.cu", "*.cuh", "*.py", "*.sh", "meson.build")


def pages(root):
    """The pages that people read, index first."""
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]


def prose(text):
    """A page without its blocks of code, in which nothing is a link or a heading."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)


def anchors(text):
    """The anchors that GitHub makes of a page's headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", prose(text), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        count = 0
        while (name := slug if count == 0 else f"{slug}-{count}") in found:
            count += 1
        found.add(name)
    return found


def broken_links(page, root):
    text = prose(page.read_text(encoding="utf-8"))
    for target in LINK.findall(text) + PICTURE.findall(text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        if not to.exists():
            yield f"{target}: no such file"
        elif anchor and anchor not in anchors(to.read_text(encoding="utf-8")):
            yield f"{target}: no such heading"
    for path in QUOTED.findall(text):
        if not (root / path).exists():
            yield f"`{path}`: no such file"


def unlisted(root):
    """Pages to which the index has no link."""
    index = root / "docs/index.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(index.read_text(encoding="utf-8"))}
    return [page for page in pages(root)[2:] if page != index and page.resolve() not in linked]


def unknown_pages(source, root):
    text = source.read_text(encoding="utf-8", errors="replace")
    for path in PAGE.findall(text):
        if not (root / path).exists():
            yield f"{path}: no such page"
    # Comments and strings go on in the next line.
    for path, number, name in SECTION.findall(re.sub(r"\s*\n\s*(?://|#)\s*|\"\n\s*\"", " ", text)):
        page = root / path
        body = prose(page.read_text(encoding="utf-8")) if page.exists() else ""
        if page.exists() and not (re.search(rf"^#+ {number}\b", body, re.M) if number else " ".join(name.split()) in body):
            yield f"{path}: no section {number or name}"


def sources(root):
    for folder in (*FOLDERS.split("|"), ".ci"):
        for pattern in SOURCES:
            yield from (path for path in sorted((root / folder).rglob(pattern)) if not path.name.startswith("docs_"))


def problems(root):
    for page in pages(root):
        for problem in broken_links(page, root):
            yield f"{page.relative_to(root)}: {problem}"
    for page in unlisted(root):
        yield f"docs/index.md: no link to {page.relative_to(root)}"
    for source in sources(root):
        for problem in unknown_pages(source, root):
            yield f"{source.relative_to(root)}: {problem}"


def check_itself():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "docs").mkdir()
        (root / "core").mkdir()
        (root / "CONTRIBUTING.md").write_text("# Contributing\n")
        (root / "docs/index.md").write_text("# Index\n\n## Two words: `x`!\n\n[a](a.md)\n")
        (root / "docs/a.md").write_text("# A\n\n[i](index.md#two-words-x) [top](#a)\n\n```md\n[no](no.md)\n```\n")
        (root / "README.md").write_text("[i](docs/index.md) `core/x.h` [out](https://example.org/no.md)\n")
        (root / "core/x.h").write_text("// docs/a.md, \"A\", has it, as docs/index.md, \"Two\n// words\".\n")
        if found := list(problems(root)):
            return found
        (root / "docs/b.md").write_text("[1](no.md) [2](a.md#b) [3](#index) `core/y.h` <img src=\"no.png\">\n")
        (root / "core/x.h").write_text("// docs/no.md, section 1, and docs/a.md, section\n// 2, have it.\n")
        expected = ["no.md: no such file", "a.md#b: no such heading", "#index: no such heading", "no.png: no such file", "`core/y.h`: no such file"]
        expected = [f"docs/b.md: {problem}" for problem in expected]
        expected += ["docs/index.md: no link to docs/b.md", "core/x.h: docs/no.md: no such page", "core/x.h: docs/a.md: no section 2"]
        found = list(problems(root))
        return [] if found == expected else found or ["nothing found"]


if __name__ == "__main__":
    sys.exit(page_check.run(__doc__, problems, check_itself))
