#!/usr/bin/env python3
"""Compares what large networks' steps ask of a GPU with the table in docs/appendix/gpu-notes.md.

Usage: gpu_counts.py PROGRAM PAGE, with the environment that PROGRAM (bench_gpu_counts) needs. Prints what was counted, and
fails unless the table has the same launches and waits, and bytes and times within 1 %.
"""
import json
import subprocess
import sys

NAMES = {"gpt2-small": "GPT-2 small, 32 x 512 tokens", "gpt2-1024": "GPT-2 small, 32 x 1024 tokens",
         "vit-b16": "ViT-B/16, 256 x 224²", "resnet50-224": "ResNet-50, 256 x 224²", "wrn16": "WRN-16-4, 256 x 32²"}
CARDS = ("A100", "H100", "H200")


def row(line: dict) -> str:
    cells = [NAMES[line["model"]], line["mode"], f"{line['launches']:,}", str(line["waits"]),
             f"{line['gigabytes']:.0f}", *(f"{line['ms'][card]:.0f}" for card in CARDS)]
    return "| " + " | ".join(cells) + " |"


def equal(line: str, known: list[str]) -> bool:
    """True if a known line is of the same network and mode, with the line's launches and waits and nearly its other numbers."""
    cells = line.split(" | ")
    for other in (one.split(" | ") for one in known if one.startswith(" | ".join(cells[:2]))):
        near = all(abs(float(a.strip(" |")) - float(b.strip(" |"))) <= max(1, 0.01 * float(b.strip(" |")))
                   for a, b in zip(cells[4:], other[4:]))
        return cells[2:4] == other[2:4] and near
    return False


def main() -> int:
    program, page = sys.argv[1:]
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in output.splitlines()]
    rows = [row(line) for line in lines]
    print("\n".join(rows))
    for ordinary, private in zip(lines[::2], lines[1::2]):
        ratios = (f"{card} {private['ms'][card] / ordinary['ms'][card]:.2f}" for card in CARDS)
        print(f"{NAMES[ordinary['model']]}: private / ordinary, estimated: {', '.join(ratios)}")
    with open(page, encoding="utf-8") as file:
        known = file.read().splitlines()
    differing = [one for one in rows if not equal(one, known)]
    for one in differing:
        print(f"{page} does not say: {one}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
