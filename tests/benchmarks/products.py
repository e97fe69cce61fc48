#!/usr/bin/env python3
"""Measures large products and convolutions as fractions of the processor's multiply-adds.

Runs `bench_kernels large`, which times each kernel in turn with multiply-adds from registers: the
fastest of several repetitions beside the highest rate of multiply-adds. Figures are medians over
rounds. N is a row-major operand, T the transpose of one.

  products.py BUILD [--document docs/appendix/experiments.md]

With --document the table is written into the file, between its lines "<!-- products -->" and
"<!-- end of products -->".
"""
import argparse
import json
import pathlib
import statistics

from pages import add_measuring, cell, json_lines, write_between

GOAL = 0.80


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path, help="build folder, with tests/benchmarks/bench_kernels")
    add_measuring(p, threads=1)
    return p.parse_args()


def table(lines):
    """The table of the lines of all rounds; without the processor's peak a fraction is unknown."""
    out = ["| what | GFLOP/s | fraction of the peak | below the goal |", "|---|--:|--:|---|"]
    for what in dict.fromkeys(line["what"] for line in lines):
        mine = [line for line in lines if line["what"] == what]
        fractions = [line["fraction"] for line in mine if line["fraction"] is not None]
        fraction = statistics.median(fractions) if fractions else None
        below = "yes" if fraction is not None and round(fraction, 2) < GOAL else ""
        out.append(f"| {what} | {statistics.median(line['gflops'] for line in mine):.1f} | {cell(fraction)} | {below} |")
    return "\n".join(out)


def main():
    args = arguments()
    lines = []
    for _ in range(args.rounds):
        lines += json_lines([args.build / "tests/benchmarks/bench_kernels", "large"], args.threads)
    print(table(lines))
    if args.json:
        args.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if args.document:
        write_between(args.document, "products", table(lines))


if __name__ == "__main__":
    main()
