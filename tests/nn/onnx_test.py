#!/usr/bin/env python3
"""Exported layers, operations and pretrained models compute in onnxruntime what they compute here, for two numbers of
samples, and models of tokens for three lengths of rows. The models are those of the conformance cases in ../shared, where these are. Every layer of docs/appendix/layers.md
is in the table of docs/appendix/onnx.md, which names the operators in its file, or that it is refused. Without onnx,
onnxruntime and numpy only what is refused is checked; in a virtual environment:

    pip install onnx onnxruntime numpy
    python tests/nn/onnx_test.py build/tests/onnx_program .
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError as absent:
    print(f"without a runtime: {absent}")
    onnx = None

RELATIVE = 1e-5  # of the largest result: f32, and sums of some hundred terms
LAYERS_END = "### CrossEntropyLoss"


def kind(layer):
    """Conv2d is a Conv."""
    return re.sub(r"[123]d$", "", layer)


def layers_of(root):
    """The layers of the reference."""
    page = (root / "docs/appendix/layers.md").read_text().partition(LAYERS_END)[0]
    return {kind(name) for line in re.findall(r"^### (.*)$", page, re.M) for name in line.split(", ")}


def table_of(root):
    """What the page says of each layer."""
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", (root / "docs/appendix/onnx.md").read_text(), re.M)
    return {kind(name): said for names, said in rows for name in re.findall(r"`(\w+)`", names)}


def read(path):
    """The tensors of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    entries, body = json.loads(data[8:8 + size]), data[8 + size:]
    kinds = {"F32": numpy.float32, "F64": numpy.float64, "I64": numpy.int64, "U8": numpy.uint8, "BOOL": numpy.bool_}
    return {name: numpy.frombuffer(body[slice(*x["data_offsets"])], kinds[x["dtype"]]).reshape(x["shape"])
            for name, x in entries.items() if name != "__metadata__"}


def differs(path):
    """What onnx or its runtime says against a file, or computes otherwise; empty if nothing."""
    try:
        onnx.checker.check_model(f"{path}.onnx", full_check=True)
        session = onnxruntime.InferenceSession(f"{path}.onnx", providers=["CPUExecutionProvider"])
        for file in filter(os.path.exists, (f"{path}.{batch}" for batch in "0123")):
            case = read(file)
            expected = case.pop("output")
            y, = session.run(None, case)
            if y.shape != expected.shape:
                return f"batch {file[-1]}: shape {y.shape} in place of {expected.shape}"
            error = numpy.max(numpy.abs(y - expected), initial=0) / max(1, numpy.max(numpy.abs(expected), initial=0))
            if not error <= RELATIVE:
                return f"batch {file[-1]}: differs by {error}"
    except Exception as failure:  # of any kind
        return str(failure)
    return ""


def write(path, tensors):
    """I64 and F32 arrays as safetensors."""
    header, body = {}, b""
    for name, x in tensors.items():
        header[name] = {"dtype": "I64" if x.dtype == numpy.int64 else "F32", "shape": x.shape,
                        "data_offsets": [len(body), len(body) + x.nbytes]}
        body += x.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def models(root, folder):
    """The program's arguments for the models of the conformance cases, whose inputs are in the folder then."""
    arguments, done = [], set()
    for path in sorted((root / "../shared/cases/model").glob("*.json")) if onnx else []:
        case = json.loads(path.read_text())
        kind_of_model = (case.get("checkpoint"), case.get("type"))
        if None in kind_of_model or kind_of_model in done:
            continue
        done.add(kind_of_model)
        inputs = {name[3:]: x for name, x in read(path.with_suffix(".safetensors")).items()
                  if name.startswith("in.") and name != "in.labels"}
        write(pathlib.Path(folder, f"{case['name']}.in"), inputs)
        checkpoint = path.parent / case["checkpoint"]
        has_config = (checkpoint / "config.json").exists()
        arguments += [case["name"], str(checkpoint), "" if has_config else case["type"]]
    return arguments


def operators(path):
    return {node.op_type for node in onnx.load(f"{path}.onnx").graph.node}


def check(program, root, folder):
    table, found, seen = table_of(root), [], {}
    run = subprocess.run([program, folder] + models(root, folder), check=True, capture_output=True, text=True)
    for line in run.stdout.splitlines():
        name, case, refusal = line.split("\t")
        path = f"{folder}/{case}"
        if refusal.endswith(" is not known"):  # a model of somebody's that is not in this tree
            print(f"left out: {name}: {refusal}")
            continue
        if refusal and (not refusal.startswith("export_onnx: ") or name.startswith("model: ")):
            found.append(f"{name}: {refusal}")
        if name in table and bool(refusal) != table[name].startswith("refused"):
            found.append(f"{name}: {refusal or 'exported'}, but the page says: {table[name]}")
        if onnx and not refusal:
            found += [f"{name} ({case}): {why}" for why in [differs(path)] if why]
            seen[name] = seen.get(name, set()) | operators(path)
    for name in sorted(layers_of(root) - table.keys()):
        found.append(f"docs/appendix/onnx.md: {name} is not in the table")
    for name, made in seen.items():
        found += [f"docs/appendix/onnx.md: {name}: no {op} in its file" for op in re.findall(r"`(\w+)`", table.get(name, ""))
                  if op not in made and op not in table]
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        problems = check(sys.argv[1], pathlib.Path(sys.argv[2]), made)
    print("\n".join(problems))
    sys.exit(1 if problems else 0)
