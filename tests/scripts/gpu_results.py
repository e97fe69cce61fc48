#!/usr/bin/env python3
"""Puts what a GPU has done so far in tables: gpu_results.py FOLDER writes results.json and results.md there, from
steps.txt, machine.log, bench*.log (bench_gpu), networks_*.log (bench_steps) and peers*.log (peers.py)."""
import json
import math
import pathlib
import sys


def text(path):
    return path.read_text(errors="replace") if path.exists() else ""


def steps(folder):
    return [dict(zip(("name", "status", "seconds"), line.split())) for line in text(folder / "steps.txt").split("\n") if line]


def measurements(logs):
    """The lines of logs that are JSON objects: one that is cut off is left out."""
    found = []
    for line in (line for log in sorted(logs) for line in text(log).split("\n")):
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return [one for one in found if isinstance(one, dict)]


def gpu_name(folder):
    names = [line for line in text(folder / "machine.log").split("\n") if "NVIDIA" in line]
    return names[1].strip("| ") if len(names) > 1 else "no GPU seen"


def ratio(a, b, key="ms_per_step"):
    """a / b of what two lines say of the key; empty if one says nothing."""
    known = a and b and a.get(key) and b.get(key)
    return round(a[key] / b[key], 2) if known else ""


def rate(line):
    return round(line["batch"] / line["ms_per_step"] * 1e3, 1) if line else ""


def against(peer, ours, same):
    """How many of our steps the peer's takes, or why that is not known."""
    return ratio(peer, ours) or (peer or {}).get("failed", "") or ("" if same else "another function")


def apart(*lines):
    """By how much, at most, the two measurements of each line differ: 0.01 is 1 %."""
    halves = [line["ms_halves"] for line in lines if line and line.get("ms_halves")]
    return round(max((max(pair) / min(pair) - 1 for pair in halves), default=0), 3)


def verdicts(ours, peers):
    """A row for each network, number of samples and precision, captured or not, that we have timed: ours (ordinary and one
    flat bound) beside PyTorch's and the faster of Opacus'."""
    def case(line):
        return line["model"], line["batch"], line["precision"]

    mine, theirs, other = {}, {}, set()
    for line in ours:
        mine.setdefault((*case(line), line.get("not_captured") == ""), {})[line["mode"]] = line
    for line in (line for line in peers if "model" in line):
        if "mode" in line:
            theirs.setdefault(case(line), {})[line["mode"]] = line
        elif not line.get("same"):
            other.add(line["model"])
    rows = []
    for (model, samples, precision, captured), modes in mine.items():
        ordinary, private = modes.get("ordinary"), modes.get("flat")
        peer = theirs.get((model, samples, precision), {})
        torch, compiled = peer.get("ordinary"), peer.get("compiled")
        opacus = min((peer[mode] for mode in ("hooks", "ghost") if mode in peer),
                     key=lambda one: one.get("ms_per_step", math.inf), default=None)
        same = model not in other
        rows.append({"network": model + (", captured" if captured else ""), "samples": samples, "precision": precision,
                     "ordinary, samples/s": rate(ordinary), "private, samples/s": rate(private),
                     "private / ordinary": ratio(private, ordinary),
                     "private / ordinary peak": ratio(private, ordinary, "peak_bytes"),
                     "PyTorch / ordinary": against(torch, ordinary, same),
                     "PyTorch / ordinary peak": ratio(torch, ordinary, "peak_bytes"),
                     "compiled / ordinary": against(compiled, ordinary, same),
                     "Opacus / private": against(opacus, private, same),
                     "Opacus / private peak": ratio(opacus, private, "peak_bytes"),
                     "apart": apart(ordinary, private, torch, compiled, opacus)})
    return rows


def beside(ours, peers):
    """Our measurements of kernels, each with those of peers that have its name and type: their time, and how many of ours
    it is."""
    rows = []
    for one in ours:
        row = dict(one)
        for peer in peers:
            if (peer.get("what"), peer.get("dtype")) == (one["what"], one["dtype"]):
                row[peer["by"]] = peer["microseconds"]
                row[f"{peer['by']} / sotto"] = round(peer["microseconds"] / one["microseconds"], 2)
        rows.append(row)
    return rows


def columns(rows):
    """All keys of the rows, in the order in which they come first."""
    return list(dict.fromkeys(key for row in rows for key in row))


def table(rows, columns):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(str(row.get(c, "")) for c in columns) + " |" for row in rows]


def main(folder):
    peers = measurements(folder.glob("peers*.log"))
    kernels = beside([one for one in measurements(folder.glob("bench*.log")) if "microseconds" in one], peers)
    networks = verdicts([one for one in measurements(folder.glob("networks_*.log")) if "ms_per_step" in one], peers)
    results = {"gpu": gpu_name(folder), "steps": steps(folder), "networks": networks, "measurements": kernels}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = [results["gpu"], ""] + table(results["steps"], ["name", "status", "seconds"])
    for rows in (networks, kernels):
        if rows:
            lines += [""] + table(rows, columns(rows))
    (folder / "results.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not (pathlib.Path(sys.argv[1]) / "steps.txt").is_file():
        sys.exit(f"gpu_results.py: {sys.argv[1]} has no steps.txt of gpu_slot.sh")
    main(pathlib.Path(sys.argv[1]))
