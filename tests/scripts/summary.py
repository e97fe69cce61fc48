#!/usr/bin/env python3
"""Sums up what `meson test` wrote, in the form "N passed, N failed, N skipped".

Usage: summary.py BUILD/meson-logs/testlog.json. The closing lines of the conformance runner come
first, and the tests that took longest. Exit status 1 when a test failed, or none ran.
"""

import json
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}


def main(path):
    with open(path, encoding="utf-8") as file:
        results = [json.loads(line) for line in file]
    for result in results:
        name = result["name"].split(" ")[-1]
        lines = result.get("stdout", "").splitlines()
        if name in ("conformance_own", "conformance_shared") and lines:
            print(f"{name}: {lines[-1]}")
    if not any(result["name"].endswith("conformance_shared") for result in results):
        print("conformance_shared: no cases but the project's own are there")
    slowest = sorted(results, key=lambda result: -result["duration"])[:20]
    print("slowest:", ", ".join(f"{result['name'].split(' ')[-1]} {result['duration']:.0f} s" for result in slowest))
    passed = sum(result["result"] in PASSED for result in results)
    skipped = sum(result["result"] in SKIPPED for result in results)
    failed = len(results) - passed - skipped
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if len(sys.argv) < 2:
    sys.exit(__doc__)
sys.exit(main(sys.argv[1]))
