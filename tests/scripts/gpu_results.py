#!/usr/bin/env python3
"""Puts what tests/scripts/gpu.sh has done so far in a table: gpu_results.py FOLDER writes results.json and
results.md there, from steps.txt, machine.log, bench.log, bench_tf32.log, the steps of networks in networks_*.log, and
peers.log."""
import json
import pathlib
import sys


def steps(folder):
    lines = (folder / "steps.txt").read_text().split("\n")
    return [dict(zip(("name", "status", "seconds"), line.split())) for line in lines if line]


def measurements(log):
    """The lines of a log that are JSON: one that is cut off is left out."""
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


def network_steps(lines):
    """Steps that bench_steps has timed, as measurements: private ones with how many of the ordinary one's they take."""
    rows, ordinary = [], {}
    for line in lines:
        mode = "ordinary" if line["mode"] == "ordinary" else f"private ({line['mode']})"
        captured = ", captured" if line.get("not_captured") == "" else ""
        peak = line["peak_bytes"] / 2**20
        row = {"what": f"{line['model']} {mode} step, batch {line['batch']}{captured}", "dtype": line["precision"],
               "microseconds": round(line["ms_per_step"] * 1e3, 1),
               "rate": round(line["batch"] / line["ms_per_step"] * 1e3, 1), "unit": "samples/s", "peak MiB": round(peak, 1)}
        case = (line["model"], line["batch"], line["precision"], captured)
        if mode == "ordinary":
            ordinary[case] = line["ms_per_step"], peak
        elif case in ordinary:
            row["private / ordinary"] = round(line["ms_per_step"] / ordinary[case][0], 2)
            row["memory"] = round(peak / ordinary[case][1], 2)
        rows.append(row)
    return rows


def beside(ours, peers):
    """Our measurements, each with those of peers that have its name and type: their time, and how many of ours it is.
    An ordinary or private step is the peers' for ours that is captured, too."""
    rows = []
    for one in ours:
        row = dict(one)
        for peer in peers:
            if (peer["what"], peer["dtype"]) == (one["what"].removesuffix(", captured"), one["dtype"]):
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
    ours = measurements(folder / "bench.log") + measurements(folder / "bench_tf32.log")
    for log in sorted(folder.glob("networks_*.log")):
        ours += network_steps(measurements(log))
    measured = beside(ours, measurements(folder / "peers.log"))
    results = {"gpu": gpu_name(folder), "steps": steps(folder), "measurements": measured}
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    lines = [results["gpu"], ""] + table(results["steps"], ["name", "status", "seconds"])
    if measured:
        lines += [""] + table(measured, columns(measured))
    (folder / "results.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
