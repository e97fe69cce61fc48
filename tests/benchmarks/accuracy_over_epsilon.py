#!/usr/bin/env python3
"""Trains a program's model at several epsilons and without privacy, with some seeds each, and draws the accuracy, or
the nats per character of a language model.

usage: accuracy_over_epsilon.py --out PICTURE.svg --title TEXT [--ordinary OPTIONS] [--seeds N] -- COMMAND...

COMMAND is a training program with its options, without --epsilon, --seed, --json and --quiet. OPTIONS, in one argument,
replace those of COMMAND from --preset on for the training without privacy. Prints a table for a page.
"""
import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

from drawing import LinearAxis, LogAxis, axes, dot, legend, line, polyline, svg, text

EPSILONS = (0.5, 1, 2, 4, 8)
# Of the picture, and the ends of its axes.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 600, 340, 64, 570, 84, 284


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


def picture(data):
    """A chart as SVG: the median and the seeds at each epsilon, and a line for ordinary training."""
    points, ordinary, unit = data["points"], data["ordinary"], data["unit"]
    x = LogAxis([epsilon for epsilon, _ in points], LEFT, RIGHT, base=2)
    y = LinearAxis([value for _, seeds in points for value in seeds] + [ordinary], BOTTOM, TOP)
    measure = "test accuracy" if unit else "nats per character of the test data: less is better"
    parts = [text(20, 26, data["title"], "t"), *axes(x, y, "privacy budget ε (log scale)", measure,
                                                     label=lambda tick: f"{tick:.6g}{unit}")]
    parts += legend({"private": "private: a run, and the median", "ordinary": "without privacy"}, 30, 48, 230)
    parts.append(line("thick dash ordinary", LEFT, y.at(ordinary), RIGHT, y.at(ordinary)))
    parts.append(polyline("thick private", [(x.at(epsilon), y.at(statistics.median(seeds))) for epsilon, seeds in points]))
    parts += [dot("private", x.at(epsilon), y.at(value), f"ε = {epsilon:g}: {value:g}{unit}", 3)
              for epsilon, seeds in points for value in seeds]
    return svg(WIDTH, HEIGHT, data["title"], parts, {"drawn_by": "accuracy_over_epsilon", **data})


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
    data = {"title": options.title, "points": points, "ordinary": ordinary, "unit": plain[0][2]}
    options.out.write_text(picture(data), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
