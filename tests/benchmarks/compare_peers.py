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

from drawing import LogAxis, dot, legend, line, svg, text
from pages import add_measuring, cell, json_lines, write_between

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


SHOWN = {"ordinary": "sotto, ordinary", "private": "sotto, private", "torch": "PyTorch, ordinary", "opacus": "Opacus, private",
         "floor": "floor"}
FLOOR = "floor: what an ordinary step would take if each kernel reached the machine's ceiling of operations or bytes"
NETWORKS = {"logreg": "logistic regression", "ffnn": "two linear layers", "mnist": "MNIST network", "cifar10": "CIFAR-10 network",
            "embed": "embedding network", "lstm": "LSTM network"}


def plot(data):
    """Times of all sides on a logarithmic axis, a row for each case, as SVG; no dot hides another side's."""
    cases, names = data["cases"], {side: words for side, words in SHOWN.items() if side in data["sides"]}
    left, width, top, apart = 196, 560, 104 if "floor" in names else 88, 13 if data["labels"] else 8
    row = (apart + 2) * len(names)
    bottom = top + row * len(cases)
    axis = LogAxis([ms for case in cases for side, ms in case["ms"].items() if side in names], left, left + width)
    out = [text(20, 26, data["title"], "t"), text(20, 46, data["about"], "s"), *legend(names, 30, top - 18, 144)]
    if "floor" in names:
        out.append(text(20, 64, FLOOR, "s"))
    for tick in axis.ticks():
        out += [line("grid", axis.at(tick), top, axis.at(tick), bottom), text(axis.at(tick), bottom + 18, f"{tick:g}", "s m")]
    for k, case in enumerate(cases):
        y = top + row * k
        out += [line("grid", 20, y, left + width, y), text(20, y + row / 2 + 4, f'{NETWORKS[case["model"]]}, {case["batch"]}')]
        for n, side in ((n, side) for n, side in enumerate(names) if side in case["ms"]):
            at, height = axis.at(case["ms"][side]), y + row / 2 + apart * (n - (len(names) - 1) / 2)
            out.append(dot(side, at, height, f'{names[side]}: {case["ms"][side]:g} ms'))
            if data["labels"]:
                out.append(text(at + 8, height + 4, f'{case["ms"][side]:.3g}' if case["ms"][side] < 1000 else f'{case["ms"][side]:,.0f}', "s o"))
    out.append(text(left + width / 2, bottom + 38, "milliseconds of a step (log scale); beside each network the batch", "s m"))
    return svg(left + width + 60, bottom + 54, data["title"], out, {"drawn_by": "compare_peers", **data})


def processor():
    names = (line.partition(": ")[2].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name"))
    return next(names, "a CPU")


def main():
    args = arguments()
    ceilings, cases = measure(args)
    text = table(ceilings, cases)
    print(text)
    if args.json:
        args.json.write_text("".join(json.dumps(line) + "\n" for line in [ceilings, *cases]))
    if args.document:
        drawn = args.document.with_name("training_steps.svg")
        shown = [{**case, "ms": {**case["ms"], "floor": case["floor_ms"]}} for case in cases]
        drawn.write_text(plot({"title": "Milliseconds of a training step", "about": f"{args.threads} threads of {processor()}",
                               "sides": list(SHOWN), "labels": False, "cases": shown}))
        write_between(args.document, "steps", f"{text}\n\n![Milliseconds of a training step]({drawn.name})")


if __name__ == "__main__":
    main()
