#!/usr/bin/env python3
"""Trains a program's model at several epsilons and without privacy, with some seeds each, and draws the accuracy, or
the nats per character of a language model.

usage: accuracy_over_epsilon.py --out PICTURE.svg --title TEXT [--ordinary OPTIONS] [--seeds N] -- COMMAND...

COMMAND is a training program with its options, without --epsilon, --seed, --json and --quiet. OPTIONS, in one argument,
replace those of COMMAND from --preset on for the training without privacy. Prints a table for a page.
"""
import argparse
import json
import math
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

from pages import COLORS, svg

EPSILONS = (0.5, 1, 2, 4, 8)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 300, 60, 20, 30, 40


def test_results(command, seeds):
    """The test results of the seeds, accuracies in percent, and their seconds and units."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "run.json")
        for seed in range(1, seeds + 1):
            subprocess.run([*command, "--seed", str(seed), "--quiet", "--json", str(path)], check=True,
                           stdout=subprocess.DEVNULL)
            report = json.loads(path.read_text(encoding="utf-8"))
            if "test_accuracy" in report:
                results.append((100 * report["test_accuracy"], report["seconds"], " %"))
            else:
                results.append((report["test_nats_per_character"], report["seconds"], ""))
    return results


def picture(title, points, ordinary, unit):
    """A chart as SVG: the median and the seeds at each epsilon, and a line for ordinary training."""
    values = [value for _, seeds in points for value in seeds] + [ordinary]
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if max(values) - min(values) < 7 * s)
    low, high = math.floor(min(values) / step), math.ceil(max(values) / step)
    end = WIDTH - RIGHT
    x = lambda epsilon: LEFT + (math.log2(epsilon) + 1) / 4 * (end - LEFT)
    y = lambda value: TOP + (high - value / step) / (high - low) * (HEIGHT - TOP - BOTTOM)
    parts = [f'<text x="{LEFT}" y="18">{title}</text>']
    for tick in range(low, high + 1):
        at = y(tick * step)
        parts.append(f'<line x1="{LEFT}" x2="{end}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dddddd"/>'
                     f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{tick * step:.3g}{unit}</text>')
    parts += [f'<text x="{x(epsilon):.1f}" y="{HEIGHT - 20}" text-anchor="middle">ε = {epsilon:g}</text>'
              for epsilon, _ in points]
    parts.append(f'<line x1="{LEFT}" x2="{end}" y1="{y(ordinary):.1f}" y2="{y(ordinary):.1f}" '
                 f'stroke="{COLORS["ordinary"]}" stroke-dasharray="6 4"/><text x="{end}" y="{y(ordinary) - 5:.1f}" '
                 f'text-anchor="end">without privacy</text>')
    path = " ".join(f"{x(epsilon):.1f},{y(statistics.median(seeds)):.1f}" for epsilon, seeds in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{COLORS["private"]}" stroke-width="2"/>')
    parts += [f'<circle cx="{x(epsilon):.1f}" cy="{y(value):.1f}" r="3" fill="{COLORS["private"]}"/>'
              for epsilon, seeds in points for value in seeds]
    return svg(WIDTH, HEIGHT, title, parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--title", required=True)
    parser.add_argument("--ordinary", default="")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    base = options.command[:options.command.index("--preset")] if "--preset" in options.command else options.command
    base = base if options.ordinary else options.command
    plain = test_results([*base, *shlex.split(options.ordinary), "--no-privacy"], options.seeds)
    ordinary = statistics.median(value for value, *_ in plain)
    points = []
    names = {1: "one seed", 2: "two seeds", 3: "three seeds"}
    print(f"| ε | {names.get(options.seeds, f'{options.seeds} seeds')} | median | seconds |\n|--:|---|--:|--:|")
    for epsilon in EPSILONS:
        results = test_results([*options.command, "--epsilon", str(epsilon)], options.seeds)
        seeds = [value for value, *_ in results]
        points.append((epsilon, seeds))
        print(f"| {epsilon:g} | {', '.join(f'{value:.2f}' for value in seeds)} | {statistics.median(seeds):.2f} | "
              f"{statistics.median(seconds for _, seconds, _ in results):.1f} |", flush=True)
    print(f"| none | {', '.join(f'{value:.2f}' for value, *_ in plain)} | {ordinary:.2f} | "
          f"{statistics.median(seconds for _, seconds, _ in plain):.1f} |")
    options.out.write_text(picture(options.title, points, ordinary, plain[0][2]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
