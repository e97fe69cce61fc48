#!/usr/bin/env python3
"""Makes unity builds: many sources are compiled in one go, which is faster once, and slower after each change.

usage: unity_sources.py FOLDER MOST SOURCE...
       unity_sources.py --self

Writes FOLDER/unity_<number>.cpp, each of which includes up to MOST of the sources, and prints for each source the
file that includes it. Two sources are in different files if one uses a name that is local to the other, where it
would mean something else.
"""
import collections
import functools
import os
import pathlib
import re
import sys

ROOT = os.path.dirname(os.path.abspath(__file__))
# What a namespace without a name declares, at the beginning of a line as clang-format has it: the last word before
# its arguments, its value, its body or its end.
LOCAL = re.compile(r"(?ms)^namespace \{\n(.*?)^\}  // namespace$")
DECLARED = re.compile(
    r"(?m)^(?!template)(?:\[\[\w+\]\] )?[A-Za-z_][^\n;({=]*?\b(\w+)(?:<[^\n()]*>)?(?: final)?(?: :| ?[(={;\[]|$)")
# Names of types, and of functions that are called, but for members.
USED = re.compile(r"(?<![\w.>:])(?:[A-Z]\w*|\w+(?=<| ?\())")
INCLUDED = re.compile(r'(?m)^#include "(tests/[^"]+)"')
# Replaces a function of a library, in the whole program.
REPLACES = re.compile(r'extern "C"|(?m:^\S.*)\boperator (?:new|delete)\b')
TEST = re.compile(r'(?m)^TEST_CASE\(\s*("[^\n]*?")')


def local_names(text):
    """The names that are local to a source: what its unnamed namespaces declare, and its tests."""
    declared = {name for body in LOCAL.findall(text) for name in DECLARED.findall(body)}
    return declared | set(TEST.findall(text))


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def code(text):
    """The text without comments."""
    return re.sub("//.*", "", text)


@functools.cache
def names_in_header(name):
    """All names in a header of the tests, and in those of the tests that it includes."""
    text = code(read(os.path.join(ROOT, name)))
    return frozenset(re.findall(r"\w+", text)).union(*map(names_in_header, INCLUDED.findall(text)))


def used_names(text):
    """The names of types and functions that a source uses, and all names in its headers of the tests."""
    return set(USED.findall(code(text))).union(*map(names_in_header, INCLUDED.findall(text)))


def grouped(texts, most):
    """Groups of up to `most` sources, none of which uses a name that is local to another; texts: {source: text}.

    A source that replaces a function of a library is alone.
    """
    groups = collections.defaultdict(list)
    for source, text in texts.items():
        local, used = local_names(text), used_names(text)
        alike = groups[source if REPLACES.search(code(text)) else ""]
        for sources, all_local, all_used in alike:
            if len(sources) < most and not local & (all_local | all_used) and not used & all_local:
                break
        else:
            sources, all_local, all_used = [], set(), set()
            alike.append((sources, all_local, all_used))
        sources.append(source)
        all_local |= local
        all_used |= used
    return [sources for alike in groups.values() for sources, _, _ in alike]


def written(folder, groups):
    """{source: the file that includes it}; files that would not change are left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for number, sources in enumerate(groups):
        file = folder / f"unity_{number}.cpp"
        text = "".join(f'#include "{os.path.abspath(source)}"\n' for source in sources)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        files |= dict.fromkeys(sources, file)
    return files


def check_self():
    text = """
namespace {
constexpr int largest = 3;
template <class T>
struct Half final : Whole<T> {
  int inner() { return 0; }
};
std::vector<int> parts(
    int count) {
  return {};
}
[[noreturn]] void fail(const char* why);
}  // namespace
int shared() { return 0; }
TEST_CASE("a part is small") {
}
"""
    text += "namespace {\nstd::vector<int> halves(int x) { return y<int>(x); }\n}  // namespace\n"
    names = local_names(text)
    assert names == {"largest", "Half", "parts", "fail", "halves", '"a part is small"'}, names
    of = "namespace {{\nint {}();\n}}  // namespace\nint k = {}();\n".format
    texts = {"a": of("f", "x"), "b": of("g", "y"), "c": of("f", "z"), "d": of("h", "x"), "e": of("i", "g")}
    assert grouped(texts, 9) == [["a", "b", "d"], ["c", "e"]], grouped(texts, 9)
    for replacing in ('extern "C" int g();', "void operator delete(void* p) noexcept { free(p); }"):
        apart = texts | {"b": texts["b"] + replacing}
        assert grouped(apart, 9) == [["a", "d", "e"], ["c"], ["b"]], grouped(apart, 9)
    assert grouped(texts, 2) == [["a", "b"], ["c", "d"], ["e"]], grouped(texts, 2)


def main(folder, most, *sources):
    texts = {source: read(source) for source in sources}
    file_of = written(pathlib.Path(folder), grouped(texts, int(most)))
    print("\n".join(str(file_of[source]) for source in sources))


if __name__ == "__main__":
    if sys.argv[1:] == ["--self"]:
        check_self()
    elif len(sys.argv) < 4:
        sys.exit(__doc__)
    else:
        main(*sys.argv[1:])
