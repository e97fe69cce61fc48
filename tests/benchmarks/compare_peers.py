#!/usr/bin/env python3
"""Compares our training steps, ordinary and private, with those of PyTorch, Opacus and fastDP.

Runs bench_steps and peers.py in turn, a process of each for every case and round. First both sides are compared: our steps
with their samples alone (bench_steps --check), PyTorch's network, loss and gradients with ours, and each private peer's sum
of clipped gradients (peers.py). A peer that is missing, fails or computes something else is named, and the others go on.
Figures are medians over the rounds, ratios medians of the ratios within a round. Private peers, many times slower, run in
the first round alone; of Opacus' modes and of PyTorch's layouts of images the fastest counts. Peers run with an allocator
that keeps its memory, without which they take up to twice the time.

  compare_peers.py BUILD                                              all of it; PyTorch where this Python has it
  compare_peers.py BUILD --python PYTHON --models vit --batches 16    some of it; another Python
  compare_peers.py --pages                                            writes tables and plots of the pages anew

PyTorch's threads wait in loops: a second program makes its steps up to twenty times slower. So this one ends where others
use the processor; --anyway goes on, with threads that sleep while they wait. Rows are stored, after each case, in the
processor's file in --results, with its plot (step_results.py); those that were measured beside other work are stored only
where --results names a folder, and say so.
"""
import argparse
import datetime
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import peer_private
import processor
import step_results
from pages import json_lines

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/benchmarks"
# Makes the allocator of glibc keep freed memory.
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
PLAIN = ("ordinary", "channels_last")
MAX_WAIT = 60  # seconds, for others to end


def words(text):
    return [word for word in text.split(",") if word]


def add_cases(p, batches, rounds):
    """The options that say which steps are timed, and for how long."""
    p.add_argument("--models", type=words, default=list(step_results.NETWORKS), help="default: all networks of the tables")
    p.add_argument("--batches", type=words, default=batches, help=f"default: {','.join(batches)}")
    p.add_argument("--precision", type=words, default=list(step_results.PRECISIONS), help="f32, bf16; default: both")
    p.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    p.add_argument("--rounds", type=int, default=rounds, help="default: %(default)s")
    p.add_argument("--seconds", type=float, default=0.5, help="timed work in each process and mode; default: %(default)s")
    p.add_argument("--anyway", action="store_true", help="goes on beside other work")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path, nargs="?", help="build folder, with tests/benchmarks/bench_steps")
    p.add_argument("--python", default=sys.executable, help="runs the peers; default: this Python")
    p.add_argument("--peer-modes", type=words, default=["ordinary", *peer_private.MODES],
                   help="ordinary (PyTorch), hooks, ew, ghost (Opacus), fastdp; empty: no peers; default: all")
    p.add_argument("--results", type=pathlib.Path, help="folder of results; default: docs/benchmarks")
    p.add_argument("--pages", action="store_true", help="measures nothing unless BUILD is given; writes pages from the results")
    add_cases(p, ["16", "64"], 2)
    args = p.parse_args()
    for name, given, known in (("peer-modes", args.peer_modes, ("ordinary", *peer_private.MODES)),
                               ("precision", args.precision, step_results.PRECISIONS)):
        if unknown := sorted(set(given) - set(known)):
            p.error(f"--{name}: not known: {', '.join(unknown)}")
    if not args.build and not args.pages:
        p.error("BUILD or --pages says what is wanted")
    return args


def say(message):
    print(message, file=sys.stderr, flush=True)


def refuse_beside_others(anyway):
    """Ends the program where others use the processor."""
    busy = processor.busy_cores()
    if busy > processor.IDLE:
        if not anyway:
            sys.exit(f"{busy:.1f} cores are used by others, and no time would mean anything: end them, or wait, or --anyway")
        say(f"{busy:.1f} cores are used by others: read ratios at most")


def others(anyway):
    """The cores that others use, after a while in which they may end."""
    end = time.monotonic() + (0 if anyway else MAX_WAIT)
    while (busy := processor.busy_cores(0.3)) > processor.IDLE and time.monotonic() < end:
        pass
    return busy


def waiting(args):
    """How threads wait: in loops, as PyTorch's do by default, unless others need the processor."""
    return {"OMP_WAIT_POLICY": "PASSIVE"} if args.anyway else {}


def timed(build, args, model, batch, precision, *more):
    """The lines of bench_steps, by mode."""
    command = [build / "tests/benchmarks/bench_steps", "--models", model, "--batches", batch, "--precision", precision, "--seconds",
               str(args.seconds), "--max-steps", "10000", "--warmup", "2", "--min-steps", "3", "--modes", "ordinary,flat", *more]
    return {line["mode"]: line for line in json_lines(command, args.threads)}


class Peers:
    """peers.py, for networks that compute what ours do: `errors` has those, with both sides' errors in bf16."""

    def __init__(self, args, folder):
        self.args, self.folder, self.errors, self.versions, self.told, self.missing = args, folder, {}, {}, set(), set()
        if not args.peer_modes:
            return
        for precision in step_results.PRECISIONS:
            json_lines([args.build / "tests/benchmarks/bench_steps", "--write", folder / precision, "--models", ",".join(args.models),
                        "--precision", precision], args.threads)
        lines = self.run([], "--models", ",".join(args.models), "--rounded", folder / "bf16")
        if not lines:
            say(f"no PyTorch in {args.python}: our steps alone are timed")
        for line in lines:
            if line["same"]:
                self.errors[line["model"]] = {"private error": line["our bf16 error"], "torch error": line["bf16 error"]}
            else:
                self.tell(f"{line['model']}: PyTorch's network is not timed, it is not ours: {line['why']}")

    def tell(self, message):
        if message not in self.told:
            self.told.add(message)
            say(message)

    def fail(self, line):
        """Names what failed; a mode whose package is missing is not asked for again."""
        if "No module named" in line["failed"]:
            self.tell(f"{line['mode']}: {line['failed']}: left out")
            self.missing.add(line["mode"])
        else:
            self.tell(f"{line['model']}, {line['mode']}: {line['failed']}")

    def run(self, cases, *more):
        path = self.folder / "cases.txt"
        path.write_text("\n".join(cases) + "\n", encoding="utf-8")
        command = [self.args.python, pathlib.Path(__file__).with_name("peers.py"), "--device", "cpu", "--reference",
                   self.folder / "f32", "--cases", path, "--warmup", "1", "--steps", "1", "--seconds", str(self.args.seconds), *more]
        return json_lines(command, self.args.threads, (0, 1), **KEEPING, **waiting(self.args))

    def times(self, model, batch, first):
        """Milliseconds of each side by precision, {"f32": {"torch": ..., "opacus": ...}}; of private ones in the first round."""
        found = {precision: dict(self.errors.get(model, {}) if precision == "bf16" else {}) for precision in self.args.precision}
        plain = PLAIN if "ordinary" in self.args.peer_modes else ()
        private = [mode for mode in self.args.peer_modes if mode in peer_private.MODES and mode not in self.missing] if first else []
        for modes, more in ((plain, ["--checked"]), (private, [])):
            cases = [f"{model} {batch} {precision} {','.join(modes)}" for precision in found if modes is plain or precision == "f32"]
            for line in self.run(cases, *more) if modes and cases and model in self.errors else []:
                if "failed" in line:
                    self.fail(line)
                elif "mode" in line:
                    self.versions[line["by"]] = line["version"]
                    times = found[line["precision"]]
                    times[line["by"]] = min(line["ms_per_step"], times.get(line["by"], line["ms_per_step"]))
        return found


def one_round(args, peers, model, batch, first):
    """The times of each side and the peaks of our steps, by precision."""
    found = peers.times(model, batch, first)
    for precision, sides in found.items():
        lines = timed(args.build, args, model, batch, precision, *(["--check"] if first else []))
        for side, mode in (("ordinary", "ordinary"), ("private", "flat")):
            sides |= {side: lines[mode]["ms_per_step"], f"{side} MiB": lines[mode]["peak_bytes"] / 2**20}
    if len(found) == 2:
        found["bf16"]["private f32"] = found["f32"]["private"]
    return found


def ceilings(args):
    """Multiply-adds and bytes of the machine in a second, where bench_roofline knows its instructions."""
    program = args.build / "tests/benchmarks/bench_roofline"
    return next(iter(json_lines([program, str(args.threads)], args.threads, (0, 1))), None) if program.exists() else None


def floor_ms(args, model, batch, machine):
    """The least time of our ordinary step in f32: each kernel is bounded by its operations or its bytes."""
    command = [args.build / "tests/benchmarks/bench_steps", "--models", model, "--batches", batch, "--modes", "ordinary", "--seconds",
               "0", "--warmup", "1", "--min-steps", "1", "--profile"]
    line = json_lines(command, args.threads)[0]
    return sum(max(k["flops"] / machine["fma_gflops"], k["bytes"] / machine["triad_gbytes"]) for k in line["kernels"]) * 1e-6


def significant(values):
    return {name: float(f"{value:.4g}") for name, value in values.items()}


def source(args):
    """Where the figures of a row come from."""
    git = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip() if shutil.which("git") else ""
    command = (f"compare_peers.py build --models {','.join(args.models)} --batches {','.join(args.batches)} --precision "
               f"{','.join(args.precision)} --rounds {args.rounds} --seconds {args.seconds:g}")
    return {"date": datetime.date.today().isoformat(), "commit": commit or "unknown", "command": command}


def rows_of(args, peers, model, batch, machine):
    """The rows of a network and batch, one for each precision, without their source."""
    busy, rounds = [], []
    for number in range(args.rounds):
        busy.append(others(args.anyway))
        rounds.append(one_round(args, peers, model, batch, number == 0))
    for precision in args.precision:
        mine = [one[precision] for one in rounds]
        medians = {side: statistics.median(one[side] for one in mine if side in one) for side in {side for one in mine for side in one}}
        row = {"model": model, "batch": int(batch), "precision": precision, "threads": args.threads, "rounds": args.rounds,
               "peers": dict(peers.versions), "ms": significant({side: medians[side] for side in step_results.TIMES if side in medians}),
               "mib": significant({side: medians[f"{side} MiB"] for side in ("ordinary", "private")}),
               "ratios": significant(step_results.ratios(mine))}
        if machine and precision == "f32":
            row |= significant({"floor_ms": floor_ms(args, model, batch, machine)})
        yield row | ({"busy": round(max(busy), 1)} if max(busy) > processor.IDLE else {})


def measure(args):
    """The rows of all cases; each is stored as soon as it is known."""
    refuse_beside_others(args.anyway)
    # Before a result changes the tree.
    machine, origin, rows, start = processor.described(), source(args), [], time.monotonic()
    say(f"{machine['name']} ({', '.join(machine['instructions'])}), {args.threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        peers, roof = Peers(args, pathlib.Path(folder)), ceilings(args)
        for model in args.models:
            for batch in args.batches:
                new = [row | origin for row in rows_of(args, peers, model, batch, roof)]
                rows += new
                if kept := [row for row in new if args.results or not (args.anyway or "busy" in row)]:
                    path = step_results.store(args.results or RESULTS, machine, kept)
                    path.with_suffix(".svg").write_text(step_results.figure(step_results.read(path)), encoding="utf-8")
                for row in new:
                    say(f"{time.monotonic() - start:.0f} s: {model}, {batch}, {row['precision']}: {json.dumps(row['ms'])}")
    return rows


def main():
    args = arguments()
    if args.build:
        rows = measure(args)
        print(step_results.table(rows))
        if again := {f"{row['model']} {row['batch']}" for row in rows if "busy" in row and not (args.results or args.anyway)}:
            say(f"not stored, others ran meanwhile: {', '.join(sorted(again))}")
    if args.pages:
        step_results.write_pages(ROOT)


if __name__ == "__main__":
    main()
