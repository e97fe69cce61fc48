#!/usr/bin/env python3
"""Checks that the members of EngineOptions, their list and their page are the same.

usage: options_page.py ROOT
       options_page.py ROOT --self   checks that a member left out anywhere would be found
"""
import pathlib
import re
import sys

HEADER, LIST, PAGE = "dp/engine/engine_options.h", "dp/engine/option_list.h", "docs/reference/engine-options.md"


def members(header):
    body = re.search(r"^struct EngineOptions \{$(.*?)^\};$", header, re.S | re.M)[1]
    return set(re.findall(r"(\w+) = [^;]*;", re.sub(r"//.*", "", body)))


def listed(text):
    return set(re.findall(r'visit\("(\w+)", options\.\1, ', text))


def described(page):
    return set(re.findall(r"^\| `(\w+)", page, re.M)) | set(re.findall(r"`(\w+)`", page))


def findings(header, text, page):
    known = members(header)
    for name in sorted(known ^ listed(text)):
        yield f"{LIST}: {name} is {'missing' if name in known else 'no option'}"
    for name in sorted(known - described(page)):
        yield f"{PAGE}: {name} is missing"


def finds_each(texts):
    """Whether every member is missed where it is left out of the list or the page."""
    header, text, page = texts
    for name in members(header):
        without = text.replace(f'visit("{name}"', 'visit("gone"'), re.sub(rf"`{name}\b", "`gone", page)
        if len(list(findings(header, without[0], page))) != 1 or len(list(findings(header, text, without[1]))) != 1:
            print(name)
            return False
    return len(members(header)) > 20


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    root = pathlib.Path(arguments[0])
    texts = [(root / name).read_text(encoding="utf-8") for name in (HEADER, LIST, PAGE)]
    if arguments[1:] == ["--self"]:
        return 0 if finds_each(texts) else 1
    found = list(findings(*texts))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
