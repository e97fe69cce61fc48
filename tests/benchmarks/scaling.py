#!/usr/bin/env python3
"""Measures how time and memory of training steps grow with batch, width, depth and length.

Runs bench_steps with one size at a time doubled, ordinary and private (one bound, one pass) in turn.
The shortest step and the largest peak of memory of all rounds count. An exponent is the slope of the
logarithm of time, or of bytes, against the logarithm of the size, by least squares over the upper
half of the sizes, where the constant cost of a step weighs least.

  scaling.py BUILD [--document docs/appendix/experiments.md]

With --document the table is written into the file, between its lines "<!-- scaling -->" and
"<!-- end of scaling -->", and a figure for each size beside it.
"""
import argparse
import collections
import json
import math
import pathlib
import statistics
import sys

from drawing import LogAxis, axes, dot, legend, line, svg, text
from pages import add_measuring, cell, json_lines, write_between

# `case` maps a size to the model and the batch.
Scan = collections.namedtuple("Scan", "name network sizes case")


def doubled(first, last):
    return [first << k for k in range((last // first).bit_length())]


SCANS = [
    Scan("batch", "the MNIST network", doubled(16, 8192), lambda size: ("mnist", size)),
    Scan("width", "linear layers, four and one to 10 classes, batch 256", doubled(64, 2048), lambda size: (f"perceptron:{size}x4", 256)),
    Scan("depth", "linear layers of width 256, and one to 10 classes, batch 256", doubled(1, 128), lambda size: (f"perceptron:256x{size}", 256)),
    Scan("length", "an encoder block of width 64, batch 8", doubled(16, 1024), lambda size: (f"transformer:{size}", 8)),
]
SIDES = {"ordinary": "ordinary", "flat": "private"}
# Measure of a case: its title, its unit and the scale of the unit.
MEASURES = {"time": ("Time of a step", "ms", 1), "memory": ("Peak of memory", "MiB", 1 << 20)}
# Exponents of one build differ by this much from run to run.
SCATTER = 0.05


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path, help="build folder, with tests/benchmarks/bench_steps")
    p.add_argument("--scans", default=",".join(scan.name for scan in SCANS), help="default: %(default)s")
    p.add_argument("--seconds", type=float, default=0.3, help="timed work in each case and round")
    add_measuring(p, threads=1)
    return p.parse_args()


def timed(args, model, batch):
    command = [args.build / "tests/benchmarks/bench_steps", "--models", model, "--batches", str(batch), "--modes", ",".join(SIDES),
               "--seconds", str(args.seconds), "--warmup", "1", "--min-steps", "3", "--max-steps", "200"]
    return json_lines(command, args.threads)


def summed_up(size, lines):
    """Sums up all lines of one case: {"size": size, side: {"time": ms, "memory": bytes}}."""
    case = {"size": size}
    for mode, side in SIDES.items():
        mine = [line for line in lines if line["mode"] == mode]
        case[side] = {"time": min(line["ms_min"] for line in mine), "memory": max(line["peak_bytes"] for line in mine)}
    return case


def measure(args, scan):
    lines = {size: [] for size in scan.sizes}
    for _ in range(args.rounds):
        for size in scan.sizes:
            lines[size] += timed(args, *scan.case(size))
    return [summed_up(size, lines[size]) for size in scan.sizes]


def upper_half(cases):
    return cases[len(cases) // 2:]


def exponent(cases, side, measure):
    """Fits cost = factor size^exponent to the upper half of the cases; returns (exponent, factor)."""
    points = [(math.log(case["size"]), math.log(case[side][measure])) for case in upper_half(cases)]
    slope, constant = statistics.linear_regression(*zip(*points))
    return slope, math.exp(constant)


def exponents(cases):
    return {measure: {side: exponent(cases, side, measure)[0] for side in SIDES.values()} for measure in MEASURES}


def growing_faster(found):
    """The measures of exponents() in which private training grows faster than ordinary training."""
    return [measure for measure, sides in found.items() if sides["private"] > sides["ordinary"] + SCATTER]


def table(results):
    lines = ["| against | from, to | network | fitted from | time, ordinary | private | memory, ordinary | private | "
             "time at the end, private / ordinary | memory | private grows faster in |",
             "|---|---|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for scan, cases in results:
        found, last = exponents(cases), cases[-1]
        slopes = [cell(found[measure][side]) for measure in MEASURES for side in SIDES.values()]
        ends = [cell(last["private"][measure] / last["ordinary"][measure]) for measure in MEASURES]
        lines.append(f"| {scan.name} | {cases[0]['size']}, {last['size']} | {scan.network} | {upper_half(cases)[0]['size']} | "
                     + " | ".join(slopes + ends) + f" | {', '.join(growing_faster(found)) or '-'} |")
    return "\n".join(lines)


LEFT, WIDTH, TOP, HEIGHT = 64, 300, 108, 240


def curve(x, y, cases, side, measure, scale):
    """The measured points, and the fitted line dashed."""
    out = [dot(side, x.at(case["size"]), y.at(case[side][measure] / scale), f'{side}, {case["size"]}: {case[side][measure] / scale:.4g}', 3.5)
           for case in cases]
    slope, factor = exponent(cases, side, measure)
    (x1, y1), (x2, y2) = ((x.at(size), y.at(factor * size ** slope / scale)) for size in
                          (case["size"] for case in (upper_half(cases)[0], cases[-1])))
    return out + [line(f"l dash {side}", x1, y1, x2, y2)]


def panel(name, cases, measure, left):
    title, unit, scale = MEASURES[measure]
    sizes = [case["size"] for case in cases]
    x = LogAxis(sizes, left, left + WIDTH, base=2)
    y = LogAxis([case[side][measure] / scale for case in cases for side in SIDES.values()], TOP + HEIGHT, TOP)
    slopes = ", ".join(f"{side} {name}^{exponent(cases, side, measure)[0]:.2f}" for side in SIDES.values())
    out = [text(left - 44, TOP - 34, f"{title}: {slopes}"), *axes(x, y, f"{name} (log scale)", f"{unit} (log scale)", sizes)]
    for side in SIDES.values():
        out += curve(x, y, cases, side, measure, scale)
    return out


def figure(data):
    name, cases = data["name"], data["cases"]
    title = f"Training steps against {name}: {data['network']}"
    parts = [text(20, 26, title, "t"), *legend({"ordinary": "ordinary", "private": "private; dashed: the fitted power"}, 30, 48, 110)]
    for k, measure in enumerate(MEASURES):
        parts += panel(name, cases, measure, LEFT + k * (LEFT + WIDTH + 24))
    return svg(2 * (LEFT + WIDTH + 24), TOP + HEIGHT + 56, title, parts, {"drawn_by": "scaling", **data})


def write(document, results):
    images = []
    for scan, cases in results:
        drawn = document.with_name(f"scaling_{scan.name}.svg")
        drawn.write_text(figure({"name": scan.name, "network": scan.network, "cases": cases}))
        images.append(f"![Time and memory against {scan.name}]({drawn.name})")
    write_between(document, "scaling", "\n\n".join([table(results), *images]))


def main():
    args = arguments()
    wanted = args.scans.split(",")
    unknown = set(wanted) - {scan.name for scan in SCANS}
    if unknown:
        sys.exit(f"scaling: there is no scan called {', '.join(sorted(unknown))}")
    results = []
    for scan in (scan for scan in SCANS if scan.name in wanted):
        results.append((scan, measure(args, scan)))
        print(f"{scan.name}: done", file=sys.stderr, flush=True)
    print(table(results))
    if args.json:
        args.json.write_text("".join(json.dumps({"scan": scan.name, **case}) + "\n" for scan, cases in results for case in cases))
    if args.document:
        write(args.document, results)


if __name__ == "__main__":
    main()
