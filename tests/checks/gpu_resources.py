#!/usr/bin/env python3
"""Holds the GPU's kernels to limits of registers, local memory, spills and static shared memory.

Usage: gpu_resources.py REPORT..., as nvcc_report.py writes them. Prints the largest of each, and the kernels beyond the
limits.
"""
import re
import sys
from typing import NamedTuple


class Resources(NamedTuple):
    registers: int  # of a thread: at 64 four blocks of 256 fit a processor
    stack: int      # bytes of local memory
    spills: int     # bytes
    shared: int     # bytes, static


LIMIT = Resources(registers=64, stack=0, spills=0, shared=64)
# Kernels that may have more, by their bodies' names.
ALLOWED = {
    "ScoreWeights": LIMIT._replace(registers=100, stack=8),
    "GramDots": LIMIT._replace(registers=128),
    # One block of 512 threads for each processor: 96 registers hold sums.
    "RoundedProduct": Resources(registers=128, stack=24, spills=48, shared=49152),
    "ClipSample": LIMIT._replace(stack=16, spills=40),
    "BoundTerms": LIMIT._replace(registers=74),
    # Rows of columns that are read ahead, and a sum in f64 for each column.
    "FoldColumns": LIMIT._replace(registers=80, stack=8, spills=44),
    "WeightedParts": LIMIT._replace(registers=84),
    "AddRoundedColumns": LIMIT._replace(registers=128),
    "DecideGroups": LIMIT._replace(registers=80, stack=128),
    # 16-byte packs of two arrays, and their sums in f64.
    "NormalizeGroup": LIMIT._replace(registers=80, stack=24, spills=48),
    "SumPlaces": LIMIT._replace(registers=128),
    "SumBlocks": LIMIT._replace(registers=128),
    "MapPlaces": LIMIT._replace(registers=80),
    "UpdateEach": LIMIT._replace(stack=24),
    "Bernoulli": LIMIT._replace(stack=16),
    # Elementwise operations: sines and tangents of huge arguments.
    "Map": LIMIT._replace(stack=40, spills=8),
}
ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\S+)'.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?:[^\n]*?(?P<shared>\d+) bytes smem)?", re.S)


def kernels(report: str) -> dict[str, Resources]:
    return {found["name"]: Resources(int(found["registers"]), int(found["stack"]),
                                     int(found["stores"]) + int(found["loads"]), int(found["shared"] or 0))
            for found in ENTRY.finditer(report)}


def limit_of(name: str) -> Resources:
    own = [limit for body, limit in ALLOWED.items() if body in name]
    return Resources(*(max(values) for values in zip(LIMIT, *own)))


def main() -> int:
    all_kernels = {}
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            all_kernels |= kernels(file.read())
    if not all_kernels:
        print("no kernels in the reports")
        return 1
    print(f"{len(all_kernels)} kernels, at most", Resources(*(max(values) for values in zip(*all_kernels.values()))))
    beyond = {name: used for name, used in all_kernels.items()
              if any(one > most for one, most in zip(used, limit_of(name)))}
    for name, used in beyond.items():
        print(f"{name}: {used}, allowed {limit_of(name)}")
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
