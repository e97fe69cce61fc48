#!/usr/bin/env python3
"""Checks that the sanitized library takes the place of the one that a program was linked to.

usage: sanitizers_see.py LIBRARIES PROGRAM     what is loaded first, with colons between; out_of_bounds.cpp
"""
import os
import subprocess
import sys


def run(libraries):
    environment = {**os.environ, "LD_PRELOAD": libraries, "ASAN_OPTIONS": "detect_leaks=0"}
    environment.pop("LD_LIBRARY_PATH", None)  # by which Meson shows the way to the sanitized library, too
    return subprocess.run([sys.argv[2]], env=environment, capture_output=True, text=True)


if len(sys.argv) != 3:
    sys.exit(__doc__)
seen = run(sys.argv[1])
if seen.returncode == 0 or "heap-buffer-overflow" not in seen.stderr or "xxh64" not in seen.stderr:
    sys.exit(f"the sanitizers did not see a byte that was read behind the end: {seen}")
alone = run("")
if alone.returncode != 0:
    sys.exit(f"the program fails without them, so that this shows nothing: {alone}")
