#!/usr/bin/env python3
"""Builds what the tests need whose names contain one of the filters, and runs them; =NAME is the test of that name.

usage: run_matching.py BUILD FILTER...    a configured Meson build folder
"""
import json
import pathlib
import subprocess
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parent


def told(build, what):
    return json.loads((build / f"meson-info/intro-{what}.json").read_text())


def tests_of(build):
    """Meson's tests, after those that came or went with a source or a tag."""
    subprocess.run(["ninja", "-C", build, "build.ninja"], check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run([sys.executable, SCRIPTS / "list_tests.py", SCRIPTS.parent], check=True, capture_output=True, text=True)
    if listed.stdout != (build / "tests/unit_tests.txt").read_text():
        subprocess.run(["ninja", "-C", build, "reconfigure"], check=True, stdout=subprocess.DEVNULL)
    return told(build, "tests")


def matches(test, text):
    return test["name"] == text[1:] if text.startswith("=") else text in test["name"]


def main(build, filters):
    tests = tests_of(build)
    matching = [test for test in tests if any(matches(test, text) for text in filters)]
    if not matching:
        print(f"No test's name contains {' or '.join(filters)}. There are:", *sorted(test["name"] for test in tests), file=sys.stderr)
        return 1
    files = {target["id"]: target["filename"] for target in told(build, "targets")}
    needed = {str(pathlib.Path(name).relative_to(build.resolve()))
              for test in matching for target in test["depends"] for name in files[target]}
    if needed and subprocess.run(["ninja", "-C", build, *sorted(needed)]).returncode:
        return 1
    names = sorted({test["name"] for test in matching})
    suites = sorted({f"--suite={suite}" for test in matching for suite in test["suite"]})  # also `nightly`
    return subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", *suites, *names]).returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2:]))
