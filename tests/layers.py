#!/usr/bin/env python3
"""Checks how the sources include each other; prints file:line: what, and fails on any finding.

A folder under sotto/ includes itself and the folders to its left in LAYERS alone. Code that devices
compile (.cu files and headers with HD functions) reaches neither fmt nor Eigen. No file is longer
than MOST_LINES.

usage: layers.py ROOT
"""
import pathlib
import re
import sys

LAYERS = ["core", "kernels", "autograd", "nn", "memory", "dp", "testing"]
MOST_LINES = 400
SOURCES = {".h", ".cpp", ".cu", ".cuh", ".py"}
DEVICE_SOURCES = {".cu", ".cuh"}
KEPT_FROM_DEVICES = re.compile(r"(fmt|Eigen|unsupported/Eigen)/")
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def includes(path):
    """[(line number, what is included)]"""
    found = ((n, INCLUDE.match(line)) for n, line in enumerate(path.read_text().splitlines(), 1))
    return [(n, match[1]) for n, match in found if match]


def layer_findings(root, path):
    """Includes of a file under sotto/ that point to the right, or out of sotto/."""
    layer = path.relative_to(root / "sotto").parts[0]
    if layer == path.name:
        return  # sotto/sotto.h is all layers at once
    if layer not in LAYERS:
        yield f"{path}:1: {layer} is not a layer: {' -> '.join(LAYERS)}"
        return
    for line, name in includes(path):
        parts = name.split("/")
        if parts[0] in ("tests", "samples"):
            yield f"{path}:{line}: sotto/{layer} includes {name}"
        if parts[0] != "sotto":
            continue
        if not (root / name).is_file():
            yield f"{path}:{line}: there is no {name}"
        elif parts[1] not in LAYERS or LAYERS.index(parts[1]) > LAYERS.index(layer):
            yield f"{path}:{line}: {layer} includes {parts[1]}, which is to its right"


def device_findings(root, path, chain=(), seen=None):
    """Ways from a file that devices compile to what they cannot."""
    seen = set() if seen is None else seen
    seen.add(path)
    for line, name in includes(path):
        if KEPT_FROM_DEVICES.match(name):
            way = " -> ".join([*chain, name])
            yield f"{path}:{line}: {name} is reached from device code" + (f": {way}" if chain else "")
        header = root / name
        if name.startswith("sotto/") and header.is_file() and header not in seen:
            yield from device_findings(root, header, (*chain, name), seen)


def for_devices(path):
    return path.suffix in DEVICE_SOURCES or (
        path.suffix == ".h" and re.search(r"^\s*(template <.*> )?HD ", path.read_text(), re.M))


def findings(root):
    for folder in ("sotto", "tests", "samples"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            lines = len(path.read_text().splitlines())
            if lines > MOST_LINES:
                yield f"{path}:{MOST_LINES + 1}: {lines} lines, {MOST_LINES} at most"
            if folder == "sotto":
                yield from layer_findings(root, path)
                if for_devices(path):
                    yield from device_findings(root, path, (path.name,))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found = list(findings(pathlib.Path(sys.argv[1])))
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
