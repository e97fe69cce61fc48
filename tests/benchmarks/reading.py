#!/usr/bin/env python3
"""Times reading of tables and pictures beside pandas and Pillow, which read the same files; prints a table for a page.

usage: reading.py BUILD [--threads N] [--rows N] [--pictures N]

BUILD is a build with the tests. A side that is not installed is left out. Times are CPU time over all threads, so that other
work on the machine counts little: the least of four.
"""
import argparse
import csv
import json
import pathlib
import random
import sys
import tempfile
import time
from multiprocessing.pool import ThreadPool

from pages import json_lines

try:
    import pandas
except ImportError:
    pandas = None
try:
    import numpy
    from PIL import Image
except ImportError:
    Image = None

SIDE = 256
CITIES = ("Aachen", "Bergen", "Cork", "Delft", "Evora")


def write_table(folder, rows):
    """A table of ten numbers, a category and a label, and its schema."""
    draw = random.Random(1)
    numbers = [f"x{k}" for k in range(10)]
    with open(folder / "table.csv", "w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow([*numbers, "city", "label"])
        for _ in range(rows):
            lines.writerow([*(f"{draw.gauss(0, 1):.6f}" for _ in numbers), draw.choice(CITIES), draw.choice("ab")])
    columns = [{"name": name, "kind": "number", "min": -4, "max": 4} for name in numbers]
    columns += [{"name": "city", "kind": "category", "categories": CITIES},
                {"name": "label", "kind": "label", "categories": ["a", "b"]}]
    (folder / "schema.json").write_text(json.dumps({"columns": columns}), encoding="utf-8")


def write_pictures(folder, count):
    """Smooth pictures with some noise, as PNG and as JPEG."""
    random_numbers = numpy.random.default_rng(1)
    for form in ("png", "jpeg"):
        (folder / form).mkdir()
    for k in range(count):
        small = Image.fromarray(random_numbers.integers(0, 256, (8, 8, 3), dtype=numpy.uint8))
        smooth = numpy.asarray(small.resize((SIDE, SIDE), Image.BICUBIC), dtype=numpy.int16)
        noisy = Image.fromarray((smooth + random_numbers.integers(-4, 5, smooth.shape)).clip(0, 255).astype(numpy.uint8))
        noisy.save(folder / "png" / f"{k}.png")
        noisy.save(folder / "jpeg" / f"{k}.jpeg", quality=90)


def decoded(path):
    with Image.open(path) as picture:
        return numpy.asarray(picture.convert("RGB"), dtype=numpy.float32) / 255


def least(read):
    seconds = []
    for _ in range(4):
        start = time.process_time()
        read()
        seconds.append(time.process_time() - start)
    return min(seconds)


def peers(folder, threads):
    """The seconds of the other side, by what is read."""
    found = {}
    if pandas:
        found["table"] = least(lambda: pandas.read_csv(folder / "table.csv"))
    if Image:
        with ThreadPool(threads) as pool:
            for form in ("png", "jpeg"):
                paths = sorted((folder / form).iterdir())
                found[form] = least(lambda: numpy.stack(pool.map(decoded, paths)))
    return found


def table(ours, theirs, amounts):
    """Lines of a table: the rate of both sides for each core, and the ratio."""
    lines = ["| read | sotto | peer | sotto / peer |", "|---|--:|--:|--:|"]
    for what, (name, amount, unit) in amounts.items():
        if what not in ours:
            continue
        peer = f"{amount / theirs[what]:.0f} {unit}" if what in theirs else "-"
        ratio = f"{theirs[what] / ours[what]:.2f}" if what in theirs else "-"
        lines.append(f"| {name} | {amount / ours[what]:.0f} {unit} | {peer} | {ratio} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--pictures", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_table(folder, options.rows)
        if Image:
            write_pictures(folder, options.pictures)
        places = [folder / form for form in ("png", "jpeg") if (folder / form).is_dir()]
        lines = json_lines([options.build / "tests/benchmarks/bench_reading", folder / "table.csv", folder / "schema.json", *places],
                           options.threads)
        megabytes = (folder / "table.csv").stat().st_size / 1e6
        amounts = {"records": ("CSV, fields alone", megabytes, "MB/s"), "table": ("CSV to numbers (pandas)", megabytes, "MB/s"),
                   "png": (f"PNG, {SIDE} x {SIDE} (Pillow)", options.pictures, "/s"),
                   "jpeg": (f"JPEG, {SIDE} x {SIDE} (Pillow)", options.pictures, "/s")}
        print(table({line["what"]: line["seconds"] for line in lines}, peers(folder, options.threads), amounts))


if __name__ == "__main__":
    sys.exit(main())
