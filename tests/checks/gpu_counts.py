#!/usr/bin/env python3
"""Compares what large networks' steps ask of a GPU with the table in docs/appendix/gpu-notes.md.

Usage: gpu_counts.py PROGRAM PAGE, with the environment that PROGRAM (bench_gpu_counts) needs. Fails unless the table is what
was counted, and prints it. A change may lower a number there, not raise it.
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


def main() -> int:
    program, page = sys.argv[1:]
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    rows = [row(json.loads(line)) for line in output.splitlines()]
    print("\n".join(rows))
    with open(page, encoding="utf-8") as file:
        known = file.read()
    differing = [one for one in rows if one not in known]
    for one in differing:
        print(f"{page} does not say: {one}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
