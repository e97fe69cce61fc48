#!/usr/bin/env python3
"""Compares our training steps with peers' and with the floor that the machine sets.

Runs bench_steps and, where it is given, a program that times peers, in turn: one process of each
for every case and round, so that other load of the machine meets all sides. Figures are medians
over rounds of the ratios within a round. The peers' program takes --models, --modes, --batches,
--threads, --seconds and --max-steps and prints JSON lines with model, mode, batch and ms_per_step; its mode
"torch" is ordinary training, and the fastest of its modes that begin with "opacus" is taken. Peers
run with an allocator that keeps its memory, without which they take up to twice the time. Our own
steps are checked before they are timed (bench_steps).

  compare_peers.py BUILD                              our side alone
  compare_peers.py BUILD --peers SCRIPT --python PYTHON --document docs/appendix/experiments.md

With --document the table and the plot are written into the file, between its lines
"<!-- steps -->" and "<!-- end of steps -->", and beside it.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys

from pages import COLORS, LogAxis, add_measuring, cell, json_lines, legend, svg, write_between

# Makes the allocator of glibc keep freed memory.
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
MODELS = ["logreg", "ffnn", "mnist", "cifar10", "embed", "lstm"]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path, help="build folder, with tests/benchmarks/bench_steps and tests/benchmarks/bench_roofline")
    p.add_argument("--peers", help="the peers' program")
    p.add_argument("--python", default=sys.executable, help="what runs it")
    p.add_argument("--peer-modes", default="torch,opacus-hooks,opacus-functorch,opacus-ew,opacus-ghost,opacus-fgc")
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--batches", default="64,256,512")
    p.add_argument("--seconds", type=float, default=1.0, help="timed work in each process and mode")
    p.add_argument("--max-steps", type=int, default=10000, help="and so many steps at most")
    add_measuring(p, threads=2)
    return p.parse_args()


def one_round(args, model, batch):
    """The milliseconds of a step of each side, and the peak of memory of our steps."""
    case = ["--models", model, "--batches", str(batch), "--seconds", str(args.seconds), "--max-steps",
            str(args.max_steps)]
    found = {}
    for line in json_lines([args.build / "tests/benchmarks/bench_steps", *case, "--modes", "ordinary,flat", "--check"],
                           args.threads):
        found[{"ordinary": "ordinary", "flat": "private"}[line["mode"]]] = line["ms_per_step"]
        found[line["mode"] + " bytes"] = line["peak_bytes"]
    if args.peers:
        peers = [args.python, args.peers, *case, "--modes", args.peer_modes, "--threads", str(args.threads)]
        for line in json_lines(peers, args.threads, **KEEPING):
            if "error" in line:
                continue
            if line["mode"] == "torch":
                found["torch"] = line["ms_per_step"]
            elif line["mode"].startswith("opacus"):
                found["opacus"] = min(line["ms_per_step"], found.get("opacus", math.inf))
    return found


def floor_ms(args, model, batch, ceilings):
    """The minimum time of our ordinary step: each kernel is bounded by its operations or its bytes."""
    command = [args.build / "tests/benchmarks/bench_steps", "--models", model, "--batches", str(batch), "--modes", "ordinary",
               "--seconds", "0", "--profile"]
    line = json_lines(command, args.threads)[0]
    return sum(max(k["flops"] / ceilings["fma_gflops"], k["bytes"] / ceilings["triad_gbytes"]) for k in line["kernels"]) * 1e-6


def ratio(rounds, above, below):
    values = [r[above] / r[below] for r in rounds if above in r and below in r]
    return statistics.median(values) if values else None


RATIOS = [("private", "ordinary"), ("flat bytes", "ordinary bytes"), ("opacus", "private"), ("torch", "private"),
          ("torch", "ordinary")]
TITLES = ["private / ordinary", "memory, private / ordinary", "Opacus / private", "PyTorch / private", "PyTorch / ordinary"]


def measure(args):
    ceilings = json_lines([args.build / "tests/benchmarks/bench_roofline", str(args.threads)], args.threads)[0]
    cases = []
    for model in args.models.split(","):
        for batch in map(int, args.batches.split(",")):
            rounds = [one_round(args, model, batch) for _ in range(args.rounds)]
            sides = {side: statistics.median(r[side] for r in rounds) for side in
                     ("ordinary", "private", "torch", "opacus") if all(side in r for r in rounds)}
            case = dict(model=model, batch=batch, ms=sides, floor_ms=floor_ms(args, model, batch, ceilings),
                        ratios=[ratio(rounds, *pair) for pair in RATIOS])
            print(json.dumps(case), file=sys.stderr, flush=True)
            cases.append(case)
    return ceilings, cases


def table(ceilings, cases):
    lines = [f"Ceilings with {ceilings['threads']} threads, {ceilings['unit']}: {ceilings['fma_gflops']:.0f} GFLOP/s, "
             f"{ceilings['triad_gbytes']:.0f} GB/s. Times in milliseconds; the floor is that of the ordinary step.", "",
             "| network | batch | floor | floor / ordinary | ordinary | private | PyTorch | Opacus | " + " | ".join(TITLES) + " |",
             "|---|--:|--:|--:|--:|--:|--:|--:|" + "--:|" * len(TITLES)]
    for case in cases:
        times = [cell(case["ms"].get(side), 3) for side in ("ordinary", "private", "torch", "opacus")]
        achieved = case["floor_ms"] / case["ms"]["ordinary"]
        lines.append(f"| {case['model']} | {case['batch']} | {case['floor_ms']:.3f} | {achieved:.2f} | " + " | ".join(times) + " | "
                     + " | ".join(cell(r) for r in case["ratios"]) + " |")
    means = []
    for k in range(len(RATIOS)):
        values = [case["ratios"][k] for case in cases if case["ratios"][k]]
        means.append(cell(statistics.geometric_mean(values) if values else None))
    lines.append("| geometric mean | | | | | | | | " + " | ".join(means) + " |")
    return "\n".join(lines)


def plot(cases):
    """Times of all sides on a logarithmic axis, a row for each case, as SVG."""
    left, width, row = 110, 560, 18
    axis = LogAxis([t for case in cases for t in (*case["ms"].values(), case["floor_ms"])], left, left + width)
    height = row * len(cases) + 60
    out = legend(COLORS, left)
    for tick in axis.ticks():
        x = axis.at(tick)
        out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="24" y2="{height - 30}" stroke="#dddddd"/>'
                   f'<text x="{x:.1f}" y="{height - 14}" text-anchor="middle">{tick:g} ms</text>')
    for k, case in enumerate(cases):
        y = 36 + row * k
        out.append(f'<text x="4" y="{y + 4}">{case["model"]} {case["batch"]}</text>')
        for side, ms in {**case["ms"], "floor": case["floor_ms"]}.items():
            out.append(f'<circle cx="{axis.at(ms):.1f}" cy="{y}" r="4" fill="{COLORS[side]}"><title>{side}: {ms:.3f} ms</title></circle>')
    return svg(left + width + 20, height, "Milliseconds of a training step", out)


def main():
    args = arguments()
    ceilings, cases = measure(args)
    text = table(ceilings, cases)
    print(text)
    if args.json:
        args.json.write_text("".join(json.dumps(line) + "\n" for line in [ceilings, *cases]))
    if args.document:
        drawn = args.document.with_name("training_steps.svg")
        drawn.write_text(plot(cases))
        write_between(args.document, "steps", f"{text}\n\n![Milliseconds of a training step]({drawn.name})")


if __name__ == "__main__":
    main()
