#!/usr/bin/env python3
"""Compares what large networks' steps ask of a GPU with the table in docs/appendix/gpu-notes.md.

Usage: gpu_counts.py PROGRAM PAGE, with the environment that PROGRAM (bench_gpu_counts) needs. Prints what was counted, and
fails unless the table's numbers are near. Those of a private step depend on the units that are drawn, of whose blocks its
sums consist. A change may lower a number there, not raise it.
"""
import json
import subprocess
import sys

NAMES = {"gpt2-small": "GPT-2 small, 32 x 512 tokens", "vit-b16": "ViT-B/16, 256 x 224²",
         "resnet50-224": "ResNet-50, 256 x 224²"}
CARDS = ("A100", "H100", "H200")


def row(line: dict) -> str:
    cells = [NAMES[line["model"]], line["mode"], f"{line['launches']:,}", str(line["waits"]),
             f"{line['gigabytes']:.0f}", *(f"{line['ms'][card]:.0f}" for card in CARDS)]
    return "| " + " | ".join(cells) + " |"


NEAR = {"ordinary": 0.05, "private": 0.2}  # as a part of the number


def near(line: str, known: list[str]) -> bool:
    """Whether one of the known lines is of the same network and mode, with numbers near the line's."""
    cells = line.split(" | ")
    for other in (one.split(" | ") for one in known if one.startswith(" | ".join(cells[:2]))):
        pairs = [[float(cell.strip(" |").replace(",", "")) for cell in pair] for pair in zip(cells[2:], other[2:])]
        return all(abs(counted - written) <= max(1, NEAR[cells[1]] * written) for counted, written in pairs)
    return False


def main() -> int:
    program, page = sys.argv[1:]
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    rows = [row(json.loads(line)) for line in output.splitlines()]
    print("\n".join(rows))
    with open(page, encoding="utf-8") as file:
        known = file.read().splitlines()
    differing = [one for one in rows if not near(one, known)]
    for one in differing:
        print(f"{page} does not say: {one}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
