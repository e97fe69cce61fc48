#!/usr/bin/env python3
"""Puts what tests/gpu.sh has done so far in a table: gpu_results.py FOLDER writes results.json and
results.md there, from steps.txt, machine.log and bench.log."""
import json
import pathlib
import sys


def steps(folder):
    lines = (folder / "steps.txt").read_text().split("\n")
    return [dict(zip(("name", "status", "seconds"), line.split())) for line in lines if line]


def measurements(folder):
    """The lines of the benchmark's log that are JSON: one that is cut off is left out."""
    log = folder / "bench.log"
    found = []
    for line in log.read_text().split("\n") if log.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


def gpu_name(folder):
    log = folder / "machine.log"
    names = [line for line in (log.read_text().split("\n") if log.exists() else []) if "NVIDIA" in line]
    return names[1].strip("| ") if len(names) > 1 else "no GPU seen"


def table(rows, columns):
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(str(row.get(c, "")) for c in columns) + " |" for row in rows]


def main(folder):
    results = {"gpu": gpu_name(folder), "steps": steps(folder), "measurements": measurements(folder)}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = [results["gpu"], ""] + table(results["steps"], ["name", "status", "seconds"])
    if results["measurements"]:
        lines += [""] + table(results["measurements"], list(results["measurements"][0]))
    (folder / "results.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
