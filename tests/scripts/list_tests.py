#!/usr/bin/env python3
"""Lists the unit tests for Meson: what each source's cases are tagged with decides when and where they run.

usage: list_tests.py TESTS           one line a test: NAME PROGRAM SUITE ENVIRONMENT FILTER
       list_tests.py TESTS --sources one line a source: TARGET PROGRAM SOURCE
       list_tests.py --self          checks that the tags mean what this text says

A source is a file called *_test.cpp. A tag stands in a case, TEST_CASE("...", "[gate]"), or for all cases of a source
in a line of its own: // File tags: [gpu][sanitized]

  [gate], [nightly]  the suite; without one the case is in `quick`. Where it runs again, it is in the next suite
  [simd]             runs again with fewer of the processor's instructions
  [engine]           runs again on the portable engine
  [gpu], [gpus]      runs again on a pretended GPU, on several; [gpu] on a real one, too (gpu_bundle.sh)
  [threads]          runs again with a wrong OMP_NUM_THREADS
  [random]           runs again with many more random cases
  [sanitized]        runs again with sanitizers in the library
  [optimised]        of a source alone: it is compiled with -O1, since its own loops take the time
  [alone]            of a source alone: it is a program of its own
  [by_hand]          of a source alone: tests/meson.build names its program and its test

The sources of a folder are one program, but for those that replace a function of a library: each is alone, too.
"""
import collections
import pathlib
import re
import sys

SUITES = ["quick", "gate", "nightly"]
# The environments of a tag, and the first suite that has them.
RERUNS = {
    "simd": {"portable": "gate", "avx2": "nightly", "avx512_bf16": "nightly"},
    "engine": {"portable_engine": "gate"},
    "gpu": {"fake_gpu": "gate"},
    "gpus": {"2_fake_gpus": "nightly", "3_fake_gpus": "gate", "fake_nccl": "gate"},
    "threads": {"many_threads": "gate"},
    "random": {"many_cases": "nightly"},
    "sanitized": {"sanitized": "gate"},
}
TAGS = {*SUITES[1:], *RERUNS, "optimised", "alone", "by_hand"}
# Folders whose sources need the samples.
SAMPLES = {"samples", "benchmarks"}
FILE_TAGS = re.compile(r"(?m)^// File tags: (.*)$")
STRING = r'"(?:[^"\\]|\\.)*"'
CASE = re.compile(rf"(?m)^TEST_CASE\(\s*((?:{STRING}\s*)+)(?:,\s*({STRING}))?\)")
REPLACES = re.compile(r'(?m)^extern "C"|^\S.*\boperator (?:new|delete)\b')


class Source:
    def __init__(self, path, text):
        self.unit = path.stem.removesuffix("_test")
        self.of_samples = path.parts[0] in SAMPLES
        self.tags = set(tags("".join(FILE_TAGS.findall(text))))
        alone = "alone" in self.tags or REPLACES.search(text)
        self.program = self.unit if alone else "_".join(path.parent.parts)
        found = CASE.findall(text)
        self.names = [" ".join(name.split()) for name, _ in found]
        self.cases = [{*tags(given), *self.tags} for _, given in found]
        unknown = set().union(*self.cases, self.tags) - TAGS
        if unknown or not self.cases:
            sys.exit(f"{path}: " + (f"unknown tags {sorted(unknown)}" if unknown else "no TEST_CASE"))

    def target(self):
        """The library in which it is compiled."""
        return "samples_units" if self.of_samples else "optimised_units" if "optimised" in self.tags else "units"

    def pattern(self, suites, tag):
        """Catch2's pattern for the cases of these suites with this tag; tags of the whole source go without saying."""
        def wanted(*names):
            return "".join(f"[{name}]" for name in names if name and name not in self.tags)

        def of(suite):
            if suite != "quick":
                return wanted(tag, suite)
            return wanted(tag) + "".join(f"~[{other}]" for other in SUITES[1:] if any(other in case for case in self.cases))
        return ",".join(f"[#{self.unit}_test]" + of(suite) for suite in sorted(suites, key=SUITES.index))

    def runs(self):
        """(name, suite, environment, pattern) of each test."""
        yield from self._by_suite(self.unit, "here", None, "quick")
        for tag, environments in RERUNS.items():
            for environment, first in environments.items():
                yield from self._by_suite(f"{self.unit}_{environment}", environment, tag, first)

    def _by_suite(self, name, environment, tag, first):
        """A test for each suite, none before `first`."""
        groups = collections.defaultdict(set)
        for case in self.cases:
            if tag is None or tag in case:
                suite = SUITES.index(case_suite(case)) + (tag is not None)
                groups[min(max(suite, SUITES.index(first)), len(SUITES) - 1)].add(case_suite(case))
        for number, suite in enumerate(sorted(groups)):
            name_of_suite = name if number == 0 else f"{name}_{SUITES[suite]}"
            yield name_of_suite, SUITES[suite], environment, self.pattern(groups[suite], tag)


def tags(text):
    return re.findall(r"\[([^\]]*)\]", text)


def case_suite(case):
    return next((suite for suite in ("nightly", "gate") if suite in case), "quick")


def sources(root):
    """(path, source) of each; Catch2 wants the names of a program's cases to differ."""
    named = {}
    for path in sorted(root.rglob("*_test.cpp")):
        source = Source(path.relative_to(root), path.read_text(encoding="utf-8"))
        if "by_hand" in source.tags:
            continue
        for name in source.names:
            if (other := named.setdefault((source.program, name), path)) != path:
                sys.exit(f"{path} and {other} both have a case {name}")
        yield path, source


def check_self():
    text = """// File tags: [gpu]
TEST_CASE("one") {
TEST_CASE("two, \\"quoted\\"", "[gate]") {
TEST_CASE(
    "three"
    " lines", "[nightly][simd]") {
"""
    source = Source(pathlib.Path("a/b/x_test.cpp"), text)
    assert source.program == "a_b" and len(source.cases) == 3, source.cases
    expected = [
        ("x", "quick", "here", "[#x_test]~[gate]~[nightly]"),
        ("x_gate", "gate", "here", "[#x_test][gate]"),
        ("x_nightly", "nightly", "here", "[#x_test][nightly]"),
        ("x_portable", "nightly", "portable", "[#x_test][simd][nightly]"),
        ("x_avx2", "nightly", "avx2", "[#x_test][simd][nightly]"),
        ("x_avx512_bf16", "nightly", "avx512_bf16", "[#x_test][simd][nightly]"),
        ("x_fake_gpu", "gate", "fake_gpu", "[#x_test]~[gate]~[nightly]"),
        ("x_fake_gpu_nightly", "nightly", "fake_gpu", "[#x_test][gate],[#x_test][nightly]"),
    ]
    assert list(source.runs()) == expected, list(source.runs())
    slow = Source(pathlib.Path("x_test.cpp"), '// File tags: [nightly]\nTEST_CASE("one") {\n')
    assert list(slow.runs()) == [("x", "nightly", "here", "[#x_test]")], list(slow.runs())
    for replacing in ('extern "C" int g() {', "void operator delete(void* p) noexcept {"):
        alone = Source(pathlib.Path("a/x_test.cpp"), text + replacing)
        assert alone.program == "x", alone.program


def main(arguments):
    if arguments == ["--self"]:
        return check_self()
    if len(arguments) not in (1, 2) or arguments[1:] not in ([], ["--sources"]):
        sys.exit(__doc__)
    root = pathlib.Path(arguments[0])
    names = {}
    for path, source in sources(root):
        if arguments[1:]:
            print(source.target(), source.program, path.relative_to(root))
            continue
        for name, suite, environment, pattern in source.runs():
            if name in names:
                sys.exit(f"{path} and {names[name]} both have a test {name}")
            names[name] = path
            print(name, source.program, suite, environment, pattern)


if __name__ == "__main__":
    main(sys.argv[1:])
