"""Shared by the scripts that measure: running a benchmark, writing into a page."""
import json
import os
import pathlib
import subprocess
import sys

import processor


def add_measuring(parser, threads):
    """The options of every script that measures."""
    parser.add_argument("--threads", type=int, default=threads)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--document", type=pathlib.Path, help="the page that the table is written into")
    parser.add_argument("--json", type=pathlib.Path, help="where all measurements go, a line each")


def json_lines(command, threads, accepted=(0, ), **environment):
    """The JSON objects that a program prints, a line each. It runs with `threads` threads, on cores of their own."""
    numbers = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS")}
    cores = processor.cores(threads)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ, **numbers, **environment),
                              check=False, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
    if done.returncode not in accepted:
        sys.exit(f"{command[0]}: failed with status {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def cell(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


def write_between(path, name, text):
    """Replaces the text between the lines "<!-- NAME -->" and "<!-- end of NAME -->" of a page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before = path.read_text()
    if before.count(begin) != 1 or before.count(end) != 1 or before.index(begin) > before.index(end):
        sys.exit(f"{path}: needs one line {begin}, and after it one {end}")
    head, tail = before[:before.index(begin) + len(begin)], before[before.index(end):]
    path.write_text(f"{head}\n{text}\n\n{tail}")
