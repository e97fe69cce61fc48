"""Results of compare_peers.py: one file for each processor, its tables, plots and what the pages say of it.

A file docs/benchmarks/PROCESSOR.json holds {"processor": ..., "rows": [...]}; a row is the newest measurement of a network,
batch, precision and number of threads. All figures of a row are of one run, and its ratios are medians of ratios within a
round.
"""
import json
import statistics
import sys

import processor
from drawing import LogAxis, dot, legend, line, svg, text
from pages import cell, write_between

NETWORKS = {"logreg": "logistic regression", "ffnn": "two linear layers", "mnist": "MNIST network", "cifar10": "CIFAR-10 network",
            "embed": "embedding network", "lstm": "LSTM network", "resnet18": "ResNet-18", "wrn16": "WRN-16-4",
            "vit": "ViT-Tiny/4", "gpt2": "GPT-2, 6x384"}
PRECISIONS = ("f32", "bf16")
# Ratios by name: of the times of two sides, of their peaks of memory, or of the errors of clipped sums in bf16.
RATIOS = {"PyTorch / private": ("torch", "private"), "PyTorch / ordinary": ("torch", "ordinary"),
          "private / ordinary": ("private", "ordinary"), "memory, private / ordinary": ("private MiB", "ordinary MiB"),
          "private bf16 / f32": ("private", "private f32"), "error, PyTorch / private": ("torch error", "private error"),
          "Opacus / private": ("opacus", "private"), "fastDP / private": ("fastdp", "private")}
TIMES = {"ordinary": "ordinary", "private": "private", "torch": "PyTorch", "opacus": "Opacus", "fastdp": "fastDP"}


# (ratio, precision or both, goal in words), in the order of the page.
GOALS = [("PyTorch / private", "f32", "≥1"), ("PyTorch / private", "bf16", "≥0.9"), ("PyTorch / ordinary", "bf16", "≥1.1"),
         ("private bf16 / f32", "bf16", "≤0.65, AMX 0.5"),
         ("error, PyTorch / private", "bf16", "≥1"), ("private / ordinary", None, "≤1.15, small 1.4"),
         ("memory, private / ordinary", None, "≤1.15"), ("Opacus / private", None, "")]
SMALL = 1  # millisecond


def reached(name, row, instructions):
    """True if a row's ratio reaches its goal, as rounded in tables."""
    value = round(row["ratios"][name], 2)
    if "PyTorch" in name:
        least = {"PyTorch / private": 0.9 if row["precision"] == "bf16" else 1, "PyTorch / ordinary": 1.1}
        return value >= least.get(name, 1)
    halved = 0.5 if "amx_bf16" in instructions else 0.65 if "avx512_bf16" in instructions else 1
    small = row["ms"]["ordinary"] < SMALL
    return value <= {"private / ordinary": 1.4 if small else 1.15, "private bf16 / f32": halved}.get(name, 1.15)


def key(row):
    return row["model"], row["batch"], row["precision"], row["threads"]


def place(row):
    names = list(NETWORKS)
    return (names.index(row["model"]) if row["model"] in names else len(names), row["model"], row["batch"],
            PRECISIONS.index(row["precision"]), row["threads"])


def nameless(machine):
    return {fact: value for fact, value in machine.items() if fact != "name"}


def path_of(folder, machine):
    """The processor's file, in which people may have given it a name that tells more."""
    own = (path for path in sorted(folder.glob("*.json")) if nameless(read(path)["processor"]) == nameless(machine))
    return next(own, folder / f"{processor.slug(machine)}.json")


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def store(folder, machine, rows):
    """Replaces the rows of the processor's file that were measured anew. Another processor's file is left as it is."""
    path = path_of(folder, machine)
    old = read(path) if path.exists() else {"processor": machine, "rows": []}
    if nameless(old["processor"]) != nameless(machine):
        sys.exit(f"{path}: holds results of {old['processor']}, not of {machine}")
    kept = {key(row): row for row in old["rows"]} | {key(row): row for row in rows}
    lines = ",\n".join(json.dumps(row) for row in sorted(kept.values(), key=place))
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"processor": {json.dumps(old["processor"])},\n"rows": [\n{lines}\n]}}\n', encoding="utf-8")
    return path


def ratios(rounds):
    """The median of each ratio over the rounds that have both sides."""
    found = {}
    for name, (above, below) in RATIOS.items():
        values = [one[above] / one[below] for one in rounds if above in one and below in one]
        if values:
            found[name] = statistics.median(values)
    return found


def means(rows):
    """The geometric mean of each ratio."""
    found = {}
    for name in RATIOS:
        values = [row["ratios"][name] for row in rows if name in row["ratios"]]
        if values:
            found[name] = statistics.geometric_mean(values)
    return found


def table(rows):
    """All rows, and geometric means for each precision; sides and ratios that no row has are left out."""
    times = {side: words for side, words in TIMES.items() if any(side in row["ms"] for row in rows)}
    names = [name for name in RATIOS if any(name in row["ratios"] for row in rows)]
    floor = any("floor_ms" in row for row in rows)
    out = ["| network | batch | precision | " + " | ".join(f"{words}, ms" for words in times.values()) + " | " + " | ".join(names)
           + (" | floor / ordinary |" if floor else " |"), "|---|--:|---|" + "--:|" * (len(times) + len(names) + floor)]

    def time_of(row, side):
        ms = row["ms"].get(side)
        return cell(ms, 3 if ms and ms < 10 else 1)

    def line_of(first, row):
        cells = [time_of(row, side) if "ms" in row else "" for side in times]
        cells += [cell(row["ratios"].get(name)) for name in names]
        if floor:
            cells.append(cell(row["floor_ms"] / row["ms"]["ordinary"]) if "floor_ms" in row else "")
        return f"| {first} | " + " | ".join(cells) + " |"

    for row in rows:
        busy = ", beside other work" if "busy" in row else ""
        out.append(line_of(f"{row['model']}{busy} | {row['batch']} | {row['precision']}", row))
    for precision in PRECISIONS:
        mine = [row for row in rows if row["precision"] == precision]
        if mine:
            out.append(line_of(f"geometric mean | | {precision}", {"ratios": means(mine)}))
    return "\n".join(out)


def summary_cell(result, name, precision, goal):
    """Geometric mean and worst case of a ratio, the least where no goal is set; bold where all cases reach the goal."""
    rows = [row for row in result["rows"] if name in row["ratios"] and row["precision"] in (precision or PRECISIONS)]
    if not rows:
        return "-"
    values = [row["ratios"][name] for row in rows]
    worst = max(values) if goal.startswith("≤") else min(values)
    mark = "**" if goal and all(reached(name, row, result["processor"]["instructions"]) for row in rows) else ""
    return f"{mark}{statistics.geometric_mean(values):.2f} ({worst:.2f}){mark}"


def summary(results):
    """The geometric mean and the worst of each ratio beside its goal, a column for each processor."""
    out = ["| ratio | goal | " + " | ".join(one["processor"]["name"] for one in results) + " |",
           "|---|---|" + "--:|" * len(results)]
    for name, precision, goal in GOALS:
        cells = [summary_cell(one, name, precision, goal) for one in results]
        if set(cells) != {"-"}:
            of_one = f", {precision}" if precision and precision not in name else ""
            out.append(f"| {name.replace(' / ', '/')}{of_one} | {goal} | " + " | ".join(cells) + " |")
    return "\n".join(out)


SHOWN = {"ordinary": "sotto, ordinary", "private": "sotto, private", "torch": "PyTorch, ordinary", "opacus": "Opacus, private"}


def plot(data):
    """Times of all sides on a logarithmic axis, a row for each case, as SVG; no dot hides another side's."""
    cases, names = data["cases"], {side: words for side, words in SHOWN.items() if side in data["sides"]}
    left, width, top, apart = 216, 560, 88, 8
    row = (apart + 2) * len(names)
    bottom = top + row * len(cases)
    axis = LogAxis([ms for case in cases for side, ms in case["ms"].items() if side in names], left, left + width)
    out = [text(20, 26, data["title"], "t"), text(20, 46, data["about"], "s"), *legend(names, 30, top - 18, 164)]
    for tick in axis.ticks():
        out += [line("grid", axis.at(tick), top, axis.at(tick), bottom), text(axis.at(tick), bottom + 18, f"{tick:g}", "s m")]
    for k, case in enumerate(cases):
        y = top + row * k
        label = f'{NETWORKS.get(case["model"], case["model"])}, {case["precision"]}'
        out += [line("grid", 20, y, left + width, y), text(20, y + row / 2 + 4, label)]
        for n, side in ((n, side) for n, side in enumerate(names) if side in case["ms"]):
            height = y + row / 2 + apart * (n - (len(names) - 1) / 2)
            out.append(dot(side, axis.at(case["ms"][side]), height, f'{names[side]}: {case["ms"][side]:g} ms'))
    out.append(text(left + width / 2, bottom + 38, "milliseconds of a step (log scale)", "s m"))
    return svg(left + width + 60, bottom + 54, data["title"], out, {"drawn_by": "step_results", **data})


def about(result):
    """Processor, threads, peers and dates of a file's rows, in one line."""
    machine, rows = result["processor"], result["rows"]
    peers = sorted({f"{name} {version}" for row in rows for name, version in row.get("peers", {}).items()})
    dates = sorted({row["date"] for row in rows})
    threads = "/".join(map(str, sorted({row["threads"] for row in rows})))
    sets = ", ".join(machine["instructions"]) or "no vectors known"
    return ", ".join([f"{machine['name']} ({sets})", f"{threads} threads", *peers, " to ".join(dict.fromkeys((dates[0], dates[-1])))])


def figure(result):
    """The plot of the smallest batch that was measured of each network."""
    least = {}
    for row in result["rows"]:
        least[row["model"]] = min(row["batch"], least.get(row["model"], row["batch"]))
    cases = [{name: row[name] for name in ("model", "batch", "precision", "ms")} for row in result["rows"]
             if row["batch"] == least[row["model"]]]
    sides = [side for side in SHOWN if any(side in case["ms"] for case in cases)]
    batches = "/".join(map(str, sorted(set(least.values()))))
    return plot({"title": f"A training step of {batches} samples", "about": about(result), "sides": sides, "cases": cases})


def details(result, picture):
    """A processor's part of the appendix: where the rows come from, all of them, and the plot."""
    sources = sorted({f"{row['date']}, commit {row['commit']}: `{row['command']}`" for row in result["rows"]})
    return "\n\n".join([f"### {result['processor']['name']}", about(result) + ".", "\n".join(f"- {one}" for one in sources),
                        table(result["rows"]), f"![Milliseconds of a training step]({picture})"])


def write_pages(root):
    """Writes the plots of all processors, the summary of the page and the tables of the appendix; returns what it wrote."""
    folder = root / "docs/benchmarks"
    paths = sorted(folder.glob("*.json"))
    results = [read(path) for path in paths]
    for path, result in zip(paths, results):
        path.with_suffix(".svg").write_text(figure(result), encoding="utf-8")
    pictures = [f"../benchmarks/{path.stem}.svg" for path in paths]
    shown = "\n".join(f"![{result['processor']['name']}]({picture})" for result, picture in zip(results, pictures))
    write_between(root / "docs/explanation/performance.md", "results", f"{summary(results)}\n\n{shown}")
    write_between(root / "docs/appendix/experiments.md", "steps", "\n\n".join(map(details, results, pictures)))
    return paths
