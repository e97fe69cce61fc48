"""Shared by the scripts that measure: running a benchmark, drawing as SVG, writing into a page."""
import json
import math
import os
import pathlib
import subprocess
import sys

COLORS = {"ordinary": "#1f77b4", "private": "#d62728", "torch": "#7f7f7f", "opacus": "#bcbd22", "floor": "#2ca02c"}


def add_measuring(parser, threads):
    """The options of every script that measures."""
    parser.add_argument("--threads", type=int, default=threads)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--document", type=pathlib.Path, help="the page that the table is written into")
    parser.add_argument("--json", type=pathlib.Path, help="where all measurements go, a line each")


def json_lines(command, threads, **environment):
    """The JSON objects that a program prints, a line each. The program runs with `threads` threads and cores."""
    numbers = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS")}
    cores = sorted(os.sched_getaffinity(0))[:threads]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ, **numbers, **environment),
                          check=True, preexec_fn=lambda: os.sched_setaffinity(0, cores))
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def cell(value, digits=2):
    return "-" if value is None else f"{value:.{digits}f}"


class LogAxis:
    """Places values between two powers of the base on a line from `start` to `end`."""

    def __init__(self, values, start, end, base=10):
        self.start, self.end, self.base = start, end, base
        self.low = math.floor(math.log(min(values), base) + 1e-9)
        self.high = max(self.low + 1, math.ceil(math.log(max(values), base) - 1e-9))

    def at(self, value):
        return self.start + (math.log(value, self.base) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self):
        return [float(self.base) ** power for power in range(self.low, self.high + 1)]


def svg(width, height, title, parts):
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
                      f'font-size="11"><title>{title}</title><rect width="100%" height="100%" fill="#ffffff"/>',
                      *parts, "</svg>", ""])


def legend(sides, x, step=100):
    return [f'<circle cx="{x + step * k}" cy="12" r="4" fill="{COLORS[side]}"/><text x="{x + 8 + step * k}" y="16">{side}</text>'
            for k, side in enumerate(sides)]


def write_between(path, name, text):
    """Replaces the text between the lines "<!-- NAME -->" and "<!-- end of NAME -->" of a page."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before = path.read_text()
    if before.count(begin) != 1 or before.count(end) != 1 or before.index(begin) > before.index(end):
        sys.exit(f"{path}: needs one line {begin}, and after it one {end}")
    head, tail = before[:before.index(begin) + len(begin)], before[before.index(end):]
    path.write_text(f"{head}\n{text}\n\n{tail}")
