#!/usr/bin/env python3
"""Draws the pictures of the pages: those that explain from here, and plots from the data that they carry.

usage: pictures.py ROOT                   draws all anew
       pictures.py ROOT --check           fails, and names each, where a file is another than would be drawn
       pictures.py ROOT --measure BUILD   first asks the programs of a build for the data of noise_over_batch and
                                          bytes_over_step
"""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import accuracy_over_epsilon
import scaling
import step_results
from drawing import LinearAxis, LogAxis, arrow, axes, box, dot, legend, line, polyline, svg, text

PITCH = 214  # from box to box of a private step
STEP = (
    ("p", "Sampler", "each unit with", "probability q"),
    ("b", "Your loss", "forward on a private", "tape: [n] losses"),
    ("p", "Clipper", "backward; per-sample", "gradients; norm ≤ C"),
    ("p", "Mechanism", "+ N(0, σ² C²)", "on a grid"),
    ("b", "Optimizer", "update; all that", "follows is free"),
)


def private_step():
    """What happens in one private step, in the order of its numbers."""
    parts = []
    for k, (kind, name, *words) in enumerate(STEP):
        parts += box(kind, 16 + PITCH * k, 20, 146, 86, name, *words)
    for k, words in enumerate((("batch", ), ("losses", ), ("clipped", "sum"), ("noisy", "mean"))):
        middle = 16 + PITCH * k + 146 + (PITCH - 146) / 2
        parts += [
            arrow(middle - 29, 63, middle + 27, 63),
            *(text(middle - 2, 56 + 22 * n, word, "s m") for n, word in enumerate(words))
        ]
    mechanism, clipper, loss = (16 + PITCH * k for k in (3, 2, 1))
    parts += [
        *box("k", mechanism, 178, 146, 58, "Ledger", "a file, or in memory"),
        *box("k", clipper, 178, 146, 58, "Accountant", "PLD, PRV, RDP")
    ]
    parts += [
        arrow(mechanism + 44, 108, mechanism + 44, 174),
        text(mechanism + 36, 138, "1 event,", "s e"),
        text(mechanism + 36, 154, "written first", "s e"),
        arrow(mechanism + 102, 174, mechanism + 102, 110),
        text(mechanism + 110, 138, "2 noise, drawn once", "s"),
        text(mechanism + 110, 154, "the event is written", "s"),
        arrow(mechanism - 2, 207, clipper + 150, 207),
        arrow(clipper - 2, 207, clipper - 58, 207),
        text(clipper - 64, 212, "ε at δ", "t e")
    ]
    parts += [
        line("l", loss, 118, loss, 124),
        line("l", loss, 124, clipper + 146, 124),
        line("l", clipper + 146, 124, clipper + 146, 118),
        text((loss + clipper + 146) / 2, 142, "repeated for each physical batch of the batch", "s m")
    ]
    return svg(4 * PITCH + 178, 252, "One private step", parts)


FOLDERS = {
    "core": ("tensors", "allocators", "threads", "random numbers", "files", "ranks"),
    "kernels": ("functors", "tensor_ops", "Backend", "cpu, cuda"),
    "autograd": ("Tape, Var", "operations", "per-sample grads", "check_op"),
    "nn": ("modules, layers", "optimizers", "schedules", "data sets"),
    "memory": ("physical batches", "checkpointing", "planner", "profilers"),
    "multilevel": ("problems, levels", "responses"),
    "dp": ("sampling, clipping", "noise, accounting", "ledger, audit", "engine, train")
}


def house():
    """The folders, and what each may include."""
    parts = [text(16, 26, "samples, tests and docs may include every folder", "s")]
    for k, (name, contents) in enumerate(FOLDERS.items()):
        x, width = 16 + 146 * k, 136
        parts.append(
            f'<rect class="{"p" if name == "dp" else "b"}" x="{x}" y="40" width="{width}" height="172" rx="6"/>')
        parts.append(text(x + width / 2, 64, name, "t m"))
        parts += [text(x + width / 2, 90 + 21 * n, words, "m") for n, words in enumerate(contents)]
    parts += [
        arrow(1030, 232, 20, 232),
        text(528, 254, "a folder includes only itself and those to its left: a test checks it", "s m")
    ]
    return svg(1044, 268, "The folders and what each contains", parts)


def one_user():
    """Rows of one user, and views of them, have one gradient, which is clipped once."""
    parts = []
    for k, rows in enumerate((3, 1, 2)):
        y = 44 + 92 * k
        parts += box("b", 16, y, 100, 72, f"User {k + 1}", "one unit")
        for n in range(rows):
            at = y + 36 + 24 * (n - (rows - 1) / 2)
            parts += [
                f'<rect class="b" x="166" y="{at - 9:.0f}" width="76" height="18" rx="3"/>',
                text(204, at + 4, f"row {n + 1}", "s m"),
                arrow(118, y + 36, 162, at),
                arrow(244, at, 296, y + 36)
            ]
        parts += box("p", 300, y, 140, 72, "one gradient", "mean over the rows", "and their views")
        parts += [arrow(442, y + 36, 482, y + 36), *box("p", 486, y, 120, 72, "clipped once", "norm ≤ C")]
        parts.append(arrow(608, y + 36, 660, 172))
    parts += [
        *box("p", 664, 136, 130, 72, "sum + noise", "σ C, whatever the", "number of rows"),
        text(16, 26, "A user may have any number of rows: the sum moves by at most C if the user leaves.", "s")
    ]
    return svg(812, 330, "From users and rows to one clipped gradient per user", parts)


def crash():
    """Steps between the last checkpoint and a crash are lost, and stay paid."""
    x = [120 + 66 * k for k in range(11)]
    parts = [
        text(16, 26, "The run is killed at step 6; the last checkpoint is that of step 4.", "s"),
        text(16, 66, "steps", "t"),
        text(16, 116, "ledger", "t"),
        text(16, 166, "checkpoint", "t")
    ]
    steps = [(k, str(k), "b") for k in range(1, 7)] + [(k, str(k - 3), "b") for k in range(8, 11)]
    for at, words, kind in steps:
        lost = at in (5, 6)
        parts += [
            f'<rect class="{"k" if lost else kind}" x="{x[at] - 52}" y="48" width="46" height="28" rx="4"/>',
            text(x[at] - 29, 67, words, "m"),
            f'<rect class="k" x="{x[at] - 52}" y="98" width="46" height="28" rx="4"/>',
            text(x[at] - 29, 117, "paid", "s m")
        ]
    for at, words in ((2, "step 2"), (4, "step 4"), (9, "step 6")):  # every second step is saved
        parts += [
            f'<rect class="p" x="{x[at] - 60}" y="148" width="62" height="28" rx="4"/>',
            text(x[at] - 29, 167, words, "s m")
        ]
    crashed = x[7] - 29
    parts += [
        line("thick dash private", crashed, 40, crashed, 184),
        text(crashed, 204, "crash, then resumed from step 4", "m"),
        text((x[5] + x[6]) / 2 - 29, 40, "lost, but paid", "s m"),
        f'<path class="l" d="M{x[4]} 142 C {x[4] + 40} 132, {x[7] - 60} 188, {x[8] - 56} 82" marker-end="url(#h)"/>',
        text(
            16, 234,
            "The new step 5 draws another batch and other noise. ε counts nine releases, of which the model holds seven.",
            "s")
    ]
    return svg(862, 250, "A crash on the time line of ledger and checkpoint", parts)


def what_epsilon_means():
    """The best guess whether somebody's record was used, where both are as likely before: e^ε / (1 + e^ε)."""
    x, y = LinearAxis([0, 8], 64, 600), LinearAxis([50, 100], 300, 70)
    success = lambda epsilon: 100 * math.exp(epsilon) / (1 + math.exp(epsilon))
    parts = [
        text(20, 26, "How often may an attacker guess right whether your record was used?", "t"),
        *axes(x,
              y,
              "privacy budget ε (δ = 0; one guess in two is right without the model)",
              "guesses that are right, at most",
              label=lambda tick: f"{tick:g} %")
    ]
    parts.append(polyline("thick private", [(x.at(k / 20), y.at(success(k / 20))) for k in range(161)]))
    for epsilon, side in ((0.5, 1), (1, 1), (2, 1), (3, 1), (5, 1), (8, 0)):
        px, py = x.at(epsilon), y.at(success(epsilon))
        words = f"ε = {epsilon:g}: {success(epsilon):.3g} %, odds × {math.exp(epsilon):,.2g}" if epsilon < 3 else \
                f"ε = {epsilon:g}: {success(epsilon):.4g} %, odds × {math.exp(epsilon):,.0f}"
        parts += [
            dot("private", px, py, words),
            text(px + (10 if side else 0), py + (18 if side else 36), words, "s o" if side else "s e o")
        ]
    return svg(640, 354, "The best success at guessing whether a record was used, over epsilon", parts)


def noise_over_batch(data):
    x, y = LogAxis(data["batches"], 72, 590, base=2), LogAxis(data["noise_on_mean"], 300, 84)
    parts = [
        text(20, 26, data["title"], "t"),
        text(20, 46, data["about"], "s"),
        *axes(x, y, "batch (log scale)", "noise on the mean gradient, σ / batch, in units of C (log scale)",
              data["batches"][::2])
    ]
    parts.append(polyline("thick private",
                          [(x.at(b), y.at(v)) for b, v in zip(data["batches"], data["noise_on_mean"])]))
    for batch, sigma, value in zip(data["batches"], data["noise"], data["noise_on_mean"]):
        parts += [
            dot("private", x.at(batch), y.at(value),
                f"batch {batch}: noise multiplier {sigma:.3g}, {value:.2g} of the mean"),
            text(x.at(batch),
                 y.at(value) - 10, f"σ = {sigma:.2f}", "s m o")
        ]
    return svg(640, 354, data["title"], parts, data)


def bytes_over_step(data):
    sides, curves = data["sides"], data["curves"].values()
    x = LinearAxis([0, 100], 72, 600)
    y = LinearAxis([0] + [size for curve in curves for _, size in curve], 300, 84)
    parts = [
        text(20, 26, data["title"], "t"), *axes(x, y, "time, in percent of the step", "MiB in use"),
        *legend(sides, 30, 48, 168)
    ]
    for side, curve in zip(sides, curves):
        corners = [
            point for (at, size), (after, _) in zip(curve, curve[1:] + [[100, 0]])
            for point in ((at, size), (after, size))
        ]
        parts.append(polyline(f"thick {side}", [(x.at(at), y.at(size)) for at, size in corners]))
        at, peak = max(curve, key=lambda point: point[1])
        parts.append(text(x.at(at), y.at(peak) - 6, f"{peak:.0f} MiB", "m o"))
    return svg(640, 354, data["title"], parts, data)


def measured_noise(build):
    batches, noise = [2**k for k in range(5, 15)], []
    for batch in batches:
        command = [
            build / "samples/sotto-privacy-budget", "noise", "--epsilon", "3", "--delta", "1e-5", "--dataset-size",
            "60000", "--batch-size",
            str(batch), "--epochs", "20", "--json"
        ]
        noise.append(
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["noise_multiplier"])
    return {
        "title": "At the same ε, larger batches have less noise on their mean",
        "about": "ε = 3 at δ = 1e-5, 60,000 records, 20 epochs, Poisson sampling",
        "batches": batches,
        "noise": noise,
        "noise_on_mean": [sigma / batch for sigma, batch in zip(noise, batches)]
    }


def measured_bytes(build, *options):
    """Time in percent and MiB in use, of the program's curve, where it moves by a hundredth of its peak."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "profile.json")
        subprocess.run([
            build / "samples/sotto-memory-profile", "--model", "transformer", "--batch-size", "64", *options, "--json",
            path
        ],
                       check=True,
                       stdout=subprocess.DEVNULL)
        curve = json.loads(path.read_text(encoding="utf-8"))["curve"]
    seconds = curve["seconds"]
    total = [sum(band["bytes"][k] for band in curve["bands"]) / 2**20 for k in range(len(seconds))]
    points = [[round(100 * (at - seconds[0]) / (seconds[-1] - seconds[0]), 2),
               round(size, 2)] for at, size in zip(seconds, total)]
    kept = [points[0]]
    for point in points[1:]:
        if abs(point[1] - kept[-1][1]) > 0.01 * max(total):
            kept.append(point)
    return kept


def measure(root, build):
    (root / "docs/tutorials/noise_over_batch.svg").write_text(noise_over_batch(measured_noise(build)), encoding="utf-8")
    ghost = "--clipping", "ghost", "--checkpoint-activations"
    data = {
        "title": "Bytes over a private step: the transformer, batch 64",
        "sides": {
            "private": "one pass (book-keeping)",
            "ordinary": "two passes (ghost)",
            "floor": "two passes, and checkpoints of every module"
        },
        "curves": {
            "private": measured_bytes(build),
            "ordinary": measured_bytes(build, *ghost, "none"),
            "floor": measured_bytes(build, *ghost, "1")
        }
    }
    (root / "docs/how-to/bytes_over_step.svg").write_text(bytes_over_step(data), encoding="utf-8")


# Pictures without data, and plots with theirs.
DRAWN = {
    "docs/explanation/private_step.svg": private_step,
    "docs/explanation/house.svg": house,
    "docs/how-to/one_user.svg": one_user,
    "docs/how-to/crash.svg": crash,
    "docs/explanation/what_epsilon_means.svg": what_epsilon_means
}
PLOTTED = {"docs/tutorials/noise_over_batch.svg": noise_over_batch, "docs/how-to/bytes_over_step.svg": bytes_over_step}
DRAWERS = {
    "accuracy_over_epsilon": accuracy_over_epsilon.picture,
    "scaling": scaling.figure,
    "step_results": step_results.plot
}


def data_of(picture):
    return json.loads(re.search(r"<metadata>(.*?)</metadata>", picture.read_text(encoding="utf-8"))[1])


def pictures(root):
    """Each picture's path and what would be drawn."""
    for path in sorted((root / "docs").rglob("*.svg")):
        name = path.relative_to(root).as_posix()
        if name in DRAWN:
            yield path, DRAWN[name]()
            continue
        data = data_of(path)
        drawn_by = data.pop("drawn_by", None)
        yield path, (DRAWERS[drawn_by] if drawn_by else PLOTTED[name])(data)


def main():
    root = pathlib.Path(sys.argv[1])
    if "--measure" in sys.argv:
        measure(root, pathlib.Path(sys.argv[sys.argv.index("--measure") + 1]))
    for name in DRAWN:
        if not (root / name).exists() and "--check" not in sys.argv:
            (root / name).write_text(DRAWN[name](), encoding="utf-8")
    others = [(path, drawn) for path, drawn in pictures(root) if path.read_text(encoding="utf-8") != drawn]
    if "--check" in sys.argv:
        return "\n".join(f"{path}: not what tests/benchmarks/pictures.py draws" for path, _ in others) or 0
    for path, drawn in others:
        path.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
