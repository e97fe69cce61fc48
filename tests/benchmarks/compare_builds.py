#!/usr/bin/env python3
"""Compares the training steps of two builds of ours, in turn: new / old for each case and mode, and its geometric mean.

Each round runs bench_steps of both builds, in the other order than the round before. Times are medians over the rounds, a
ratio is the median of the ratios within a round, and the spread is the least and the greatest of them.

  compare_builds.py OLD NEW --models vit,gpt2 --batches 16 --precision bf16
"""
import argparse
import pathlib
import statistics

from compare_peers import add_cases, refuse_beside_others, say, timed

MODES = {"ordinary": "ordinary", "flat": "private"}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old", type=pathlib.Path, help="build folder, with tests/benchmarks/bench_steps")
    p.add_argument("new", type=pathlib.Path, help="another")
    add_cases(p, ["16"], 3)
    return p.parse_args()


def measured(args, model, batch, precision):
    """Milliseconds of each mode, and peaks of memory: a list of (old, new), one for each round."""
    times, peaks = {mode: [] for mode in MODES}, {mode: [] for mode in MODES}
    for number in range(args.rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        lines = {side: timed((args.old, args.new)[side], args, model, batch, precision) for side in order}
        for mode in MODES:
            times[mode].append([lines[side][mode]["ms_per_step"] for side in (0, 1)])
            peaks[mode].append([lines[side][mode]["peak_bytes"] for side in (0, 1)])
    return times, peaks


def row(case, pairs, peaks):
    """(words, ratio, ratio of memory)."""
    ratios = [new / old for old, new in pairs]
    memory = statistics.median(new / old for old, new in peaks)
    old, new = (statistics.median(side) for side in zip(*pairs))
    ratio = statistics.median(ratios)
    return f"| {case} | {old:.3f} | {new:.3f} | {ratio:.3f} | {min(ratios):.2f} to {max(ratios):.2f} | {memory:.2f} |", ratio, memory


def table(cases):
    """The table of (case, mode, times, peaks), and the geometric mean of each mode."""
    out = ["| network, batch, precision | step | old, ms | new, ms | new / old | spread | memory, new / old |",
           "|---|---|--:|--:|--:|--:|--:|"]
    found = {mode: [] for mode in MODES}
    for case, mode, pairs, peaks in cases:
        line, *ratios = row(f"{case} | {MODES[mode]}", pairs, peaks)
        out.append(line)
        found[mode].append(ratios)
    for mode, ratios in found.items():
        time, memory = (statistics.geometric_mean(values) for values in zip(*ratios))
        out.append(f"| geometric mean | {MODES[mode]} | | | {time:.3f} | | {memory:.2f} |")
    return "\n".join(out)


def main():
    args = arguments()
    refuse_beside_others(args.anyway)
    cases = []
    for model in args.models:
        for batch in args.batches:
            for precision in args.precision:
                case = f"{model}, {batch}, {precision}"
                say(case)
                times, peaks = measured(args, model, batch, precision)
                cases += [(case, mode, times[mode], peaks[mode]) for mode in MODES]
    print(table(cases))


if __name__ == "__main__":
    main()
