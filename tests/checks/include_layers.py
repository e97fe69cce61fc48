#!/usr/bin/env python3
"""Checks how the sources include each other; prints file:line: what, and fails on any finding.

A layer, a folder of the top level, includes itself and the folders to its left in LAYERS alone; so does a folder of dp
with those to its left in DP. Code that devices compile (.cu files and headers with HD functions) reaches neither fmt
nor Eigen. The names of a layer in NAMESPACES are in its namespace. No file is longer than MAX_LINES. No two headers have
one name, or whatever finds includes by their ends errs.

usage: include_layers.py ROOT
"""
import pathlib
import re
import sys

LAYERS = ["core", "kernels", "autograd", "nn", "memory", "multilevel", "dp"]
DP = [{"numerics", "event.h"}, {"sampling", "ledger"}, {"clipping"}, {"accounting"}, {"noise"}, {"audit", "engine"}]
NAMESPACES = {"memory": "sotto::memory", "multilevel": "sotto::multilevel"}
MAX_LINES = 400
SOURCES = {".h", ".cpp", ".cu", ".cuh", ".py"}
DEVICE_SOURCES = {".cu", ".cuh"}
KEPT_FROM_DEVICES = re.compile(r"(fmt|Eigen|unsupported/Eigen)/")
INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')


def includes(path):
    """[(line number, what is included)]"""
    found = ((n, INCLUDE.match(line)) for n, line in enumerate(path.read_text().splitlines(), 1))
    return [(n, match[1]) for n, match in found if match]


def rank(parts):
    """The place of a file in the order of layers, and in that of dp's folders, or None where it is in neither."""
    inside = next((i for i, folders in enumerate(DP) if parts[0] == "dp" and parts[1] in folders), None)
    return (LAYERS.index(parts[0]), inside) if len(parts) > 1 and parts[0] in LAYERS else None


def layer_findings(root, path):
    """Includes of a layer's file that point to the right, or out of the layers."""
    own = path.relative_to(root).parts
    layer, inside = rank(own)
    for line, name in includes(path):
        parts = name.split("/")
        if parts[0] in ("tests", "samples", "sotto.h", "sotto"):
            yield f"{path}:{line}: {own[0]} includes {name}"
        theirs = rank(parts)
        if theirs is None:
            continue
        if not (root / name).is_file() and not (root / (name + ".in")).is_file():
            yield f"{path}:{line}: there is no {name}"
        elif theirs[0] > layer:
            yield f"{path}:{line}: {own[0]} includes {parts[0]}, which is to its right"
        elif None not in (inside, theirs[1]) and theirs[1] > inside:
            yield f"{path}:{line}: dp/{own[1]} includes dp/{parts[1]}, which is to its right"


def device_findings(root, path, chain=(), seen=None):
    """Ways from a file that devices compile to what they cannot."""
    seen = set() if seen is None else seen
    seen.add(path)
    for line, name in includes(path):
        if KEPT_FROM_DEVICES.match(name):
            way = " -> ".join([*chain, name])
            yield f"{path}:{line}: {name} is reached from device code" + (f": {way}" if chain else "")
        header = root / name
        if name.split("/")[0] in LAYERS and header.is_file() and header not in seen:
            yield from device_findings(root, header, (*chain, name), seen)


def for_devices(path):
    return path.suffix in DEVICE_SOURCES or (
        path.suffix == ".h" and re.search(r"^\s*(template <.*> )?HD ", path.read_text(), re.M))


def namespace_findings(path, layer):
    text = path.read_text()
    if "\nnamespace sotto" in text and f"\nnamespace {NAMESPACES[layer]}" not in text:
        yield f"{path}:1: nothing is in the namespace of {layer}/, {NAMESPACES[layer]}"


def name_findings(headers):
    """Headers that have a name which an earlier one has."""
    named = {}
    for header in headers:
        if (other := named.setdefault(header.name, header)) != header:
            yield f"{header}:1: {other} has this name, too"


def findings(root):
    paths = [p for folder in (*LAYERS, "tests", "samples") for p in sorted((root / folder).rglob("*")) if p.suffix in SOURCES]
    for path in paths:
        lines = len(path.read_text().splitlines())
        if lines > MAX_LINES:
            yield f"{path}:{MAX_LINES + 1}: {lines} lines, {MAX_LINES} at most"
        if path.relative_to(root).parts[0] in LAYERS:
            layer = path.relative_to(root).parts[0]
            yield from layer_findings(root, path)
            if layer in NAMESPACES:
                yield from namespace_findings(path, layer)
            if for_devices(path):
                yield from device_findings(root, path, (path.name,))
    yield from name_findings(p for p in paths if p.suffix == ".h" and p.relative_to(root).parts[0] in LAYERS)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found = list(findings(pathlib.Path(sys.argv[1])))
    for finding in found:
        print(finding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
