#!/usr/bin/env python3
"""Builds what the tests need whose names contain one of the filters, and runs them.

usage: run_matching.py BUILD FILTER...    a configured Meson build folder
"""
import json
import pathlib
import subprocess
import sys


def main(build, filters):
    subprocess.run(["ninja", "-C", build, "build.ninja"], check=True, stdout=subprocess.DEVNULL)
    told = pathlib.Path(build) / "meson-info"
    tests = json.loads((told / "intro-tests.json").read_text())
    matching = [test for test in tests if any(text in test["name"] for text in filters)]
    if not matching:
        print(f"No test's name contains {' or '.join(filters)}. There are:", *sorted(test["name"] for test in tests), file=sys.stderr)
        return 1
    files = {target["id"]: target["filename"] for target in json.loads((told / "intro-targets.json").read_text())}
    needed = {str(pathlib.Path(name).relative_to(pathlib.Path(build).resolve()))
              for test in matching for target in test["depends"] for name in files[target]}
    if needed and subprocess.run(["ninja", "-C", build, *sorted(needed)]).returncode:
        return 1
    names = sorted({test["name"] for test in matching})
    suites = sorted({f"--suite={suite}" for test in matching for suite in test["suite"]})  # also `long`
    return subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", *suites, *names]).returncode


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
