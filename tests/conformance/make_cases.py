#!/usr/bin/env python3
"""Writes the project's own conformance cases: make_cases.py FOLDER.

The forward formulas are written out below, one loop at a time, independently of the library.
Derivatives are complex-step derivatives of them, Im f(x + ih) / h, which are exact up to rounding
(Squire and Trapp 1998), so nothing here needs a derivative written by hand. Plain Python only.
"""
import cmath
import json
import math
import random
import struct
import sys
from pathlib import Path

STEP = 1e-30
IGNORED = -100  # a target that counts as nothing
TOLERANCE = {"f32": [3e-5, 1e-5], "f64": [3e-11, 1e-10]}


def product(shape):
    return math.prod(shape)


class Numbers:
    """Values in row-major order and their shape."""

    def __init__(self, shape, values):
        assert len(values) == product(shape), (shape, len(values))
        self.shape, self.values = list(shape), list(values)

    def __getitem__(self, index):
        at = 0
        for i, n in zip(index, self.shape):
            at = at * n + i
        return self.values[at]

    def nudged(self, at):
        values = list(self.values)
        values[at] += 1j * STEP
        return Numbers(self.shape, values)


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def draw(rng, shape):
    return Numbers(shape, [single(rng.uniform(-1.5, 1.5)) for _ in range(product(shape))])


def derivatives(function, values, name):
    """[d output / d values[name][k] for k], each in the shape of the output."""
    rows = []
    for k in range(len(values[name].values)):
        out = function({**values, name: values[name].nudged(k)})
        rows.append([complex(v).imag / STEP for v in out.values])
    return rows


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


# Forward formulas.


def linear(v):
    x, w = v["x"], v["weight"]
    n, i = x.shape
    return Numbers([n, w.shape[0]],
                   [sum(x[s, k] * w[o, k] for k in range(i)) + v["bias"][o,]
                    for s in range(n) for o in range(w.shape[0])])


def conv2d(v, stride=2, padding=1):
    x, w = v["x"], v["weight"]
    (n, c, height, width), (o, _, kh, kw) = x.shape, w.shape
    rows = (height + 2 * padding - kh) // stride + 1
    columns = (width + 2 * padding - kw) // stride + 1
    y = []
    for s, f, r, q in ((s, f, r, q) for s in range(n) for f in range(o)
                       for r in range(rows) for q in range(columns)):
        total = v["bias"][f,]
        for ch, i, j in ((ch, i, j) for ch in range(c) for i in range(kh) for j in range(kw)):
            a, b = r * stride - padding + i, q * stride - padding + j
            if 0 <= a < height and 0 <= b < width:
                total += x[s, ch, a, b] * w[f, ch, i, j]
        y.append(total)
    return Numbers([n, o, rows, columns], y)


def embedding(v):
    ids, w = v["x"], v["weight"]
    return Numbers(ids.shape + [w.shape[1]],
                   [w[i, k] for i in ids.values for k in range(w.shape[1])])


def tied_linear(v):
    """tanh(x w^T) w: one weight used twice."""
    x, w = v["x"], v["w"]
    (n, i), o = x.shape, w.shape[0]
    y = []
    for s in range(n):
        h = [cmath.tanh(sum(x[s, k] * w[u, k] for k in range(i))) for u in range(o)]
        y += [sum(h[u] * w[u, k] for u in range(o)) for k in range(i)]
    return Numbers([n, i], y)


def hardsigmoid(v):
    return Numbers(v["x"].shape, [min(max(complex(x).real + 3, 0), 6) / 6 + (
        1j * complex(x).imag / 6 if abs(complex(x).real) < 3 else 0) for x in v["x"].values])


def celu(v, alpha=0.7):
    return Numbers(v["x"].shape, [x if complex(x).real > 0 else alpha * (cmath.exp(x / alpha) - 1)
                                  for x in v["x"].values])


def mul(v):
    a, b = v["a"], v["b"]
    return Numbers([a.shape[0], a.shape[1], b.shape[2]],
                   [a[i, j, 0] * b[0, j, k] for i in range(a.shape[0])
                    for j in range(a.shape[1]) for k in range(b.shape[2])])


def row_losses(logits, targets, smoothing):
    n, c = logits.shape
    losses = []
    for s in range(n):
        if targets[s] == IGNORED:
            losses.append(0.0)
            continue
        row = [logits[s, k] for k in range(c)]
        top = max(complex(z).real for z in row)
        normaliser = top + cmath.log(sum(cmath.exp(z - top) for z in row))
        losses.append(-(1 - smoothing) * (row[targets[s]] - normaliser)
                      - smoothing / c * sum(z - normaliser for z in row))
    return Numbers([n], losses)


def mlp(v):
    hidden = linear({"x": v["x"], "weight": v["fc1.weight"], "bias": v["fc1.bias"]})
    hidden = Numbers(hidden.shape, [cmath.tanh(h) for h in hidden.values])
    return linear({"x": hidden, "weight": v["fc2.weight"], "bias": v["fc2.bias"]})


# Files.


class CaseFile:
    def __init__(self, kind, name, type_, **fields):
        self.body = {"format": 1, "name": name, "kind": kind, "type": type_, **fields, "tensors": []}
        self.data = []

    def add(self, name, role, numbers, batch_dim=None, tolerance=TOLERANCE):
        dtype = {"index": "I64", "expect": "F64"}.get(role, "F32")
        entry = {"name": name, "role": role, "dtype": dtype, "shape": numbers.shape}
        if batch_dim is not None:
            entry["batch_dim"] = batch_dim
        if role == "expect":
            entry["tol"] = tolerance
        self.body["tensors"].append(entry)
        self.data.append((name, dtype, numbers))

    def write(self, folder):
        folder = folder / self.body["kind"]
        folder.mkdir(parents=True, exist_ok=True)
        self.body["tensor_file"] = self.body["name"] + ".safetensors"
        path = folder / (self.body["name"] + ".json")
        path.write_text(json.dumps(self.body, indent=1) + "\n")
        header, data = {}, b""
        for name, dtype, numbers in sorted(self.data, key=lambda entry: entry[1] == "F32"):
            letter = {"I64": "q", "F64": "d", "F32": "f"}[dtype]
            begin = len(data)
            values = numbers.values if dtype == "I64" else [complex(v).real for v in numbers.values]
            data += struct.pack(f"<{len(values)}{letter}", *values)
            header[name] = {"dtype": dtype, "shape": numbers.shape,
                            "data_offsets": [begin, len(data)]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        path = folder / self.body["tensor_file"]
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_op(folder, name, type_, function, operands, args, rng, index=()):
    case = CaseFile("op", name, type_, args=args, outputs=["y"])
    for operand, value in operands.items():
        case.add(f"in.{operand}", "index" if operand in index else "input", value)
    out = function(operands)
    weights = draw(rng, out.shape)
    case.add("grad_out.y", "grad_out", weights)
    case.add("expect.out.y", "expect", out)
    for operand, value in operands.items():
        if operand not in index:
            rows = derivatives(function, operands, operand)
            case.add(f"expect.grad_in.{operand}", "expect",
                     Numbers(value.shape, [dot(row, weights.values) for row in rows]))
    case.write(folder)


def write_layer(folder, name, type_, function, inputs, parameters, args, rng, index=()):
    """Samples lie along axis 0 of every input and of the output."""
    values = {**inputs, **parameters}
    out = function(values)
    samples = out.shape[0]
    width = product(out.shape[1:])
    case = CaseFile("layer", name, type_, args=args, batch_size=samples, outputs=["y"])
    for operand, value in inputs.items():
        case.add(f"in.{operand}", "index" if operand in index else "input", value, 0)
    for parameter, value in parameters.items():
        case.add(f"param.{parameter}", "param", value)
    weights = draw(rng, out.shape)
    case.add("grad_out.y", "grad_out", weights, 0)
    case.add("expect.out.y", "expect", out, 0)
    for operand in inputs:
        if operand not in index:
            rows = derivatives(function, values, operand)
            case.add(f"expect.grad_in.{operand}", "expect",
                     Numbers(values[operand].shape, [dot(r, weights.values) for r in rows]), 0)
    squares = [0.0] * samples
    for parameter, value in parameters.items():
        rows = derivatives(function, values, parameter)
        per_sample = [[dot(row[s * width:(s + 1) * width], weights.values[s * width:(s + 1) * width])
                       for row in rows] for s in range(samples)]
        squares = [total + dot(g, g) for total, g in zip(squares, per_sample)]
        case.add(f"expect.grad_param.{parameter}", "expect",
                 Numbers(value.shape, [math.fsum(column) for column in zip(*per_sample)]))
        case.add(f"expect.grad_sample.{parameter}", "expect",
                 Numbers([samples] + value.shape, sum(per_sample, [])), 0)
    case.add("expect.norm_sq", "expect", Numbers([samples], squares), 0,
             {"f32": [1e-4 * max(squares), 5e-5], "f64": [1e-10 * max(squares), 1e-10]})
    case.write(folder)


def factor(rule, gamma, bound, norm):
    return {"min": lambda: min(1.0, bound / norm) if norm > 0 else 1.0,
            "opacus": lambda: min(1.0, bound / (norm + 1e-6)),
            "automatic": lambda: bound / (norm + gamma)}[rule]()


def write_dp_step(folder, rng, name, positions, targets, dp):
    """A network with one hidden layer on rows of `positions` tokens each (none: one vector a row).

    dp also holds two arrays that the case stores as tensors: unit_of_row, and row_weight or None.
    """
    smoothing, rows, units = 0.1, dp["rows"], dp["units"]
    unit_of_row, keep = dp.pop("unit_of_row"), dp.pop("row_weight") or [1] * rows
    parameters = {"fc1.weight": draw(rng, [4, 3]), "fc1.bias": draw(rng, [4]),
                  "fc2.weight": draw(rng, [3, 4]), "fc2.bias": draw(rng, [3])}
    x = draw(rng, [rows] + positions + [3])
    token_reduce = "sum" if positions else "mean"
    layer = lambda n, source, y: {
        "op": "Linear", "in": {"x": source, "weight": f"fc{n}.weight", "bias": f"fc{n}.bias"},
        "args": {"in_features": n + 2, "out_features": 5 - n}, "out": {"y": y}}
    case = CaseFile(
        "dp_step", name, "dp_step",
        model={"program": [layer(1, "x", "a"),
                           {"op": "tanh", "in": {"x": "a"}, "args": {}, "out": {"y": "h"}},
                           layer(2, "h", "logits")], "output": "logits",
               "params": [{"name": n, "shape": p.shape, "trainable": True} for n, p in parameters.items()]},
        loss={"type": "cross_entropy", "label_smoothing": smoothing, "ignore_index": IGNORED,
              "token_reduce": token_reduce},
        dp={**dp, "noise_multiplier": 0.0, "sensitivity": math.hypot(*(g["max_norm"] for g in dp["groups"]))})
    case.add("in.x", "input", x, 0)
    case.add("in.target", "index", Numbers([rows] + positions, targets), 0)
    if dp["user_level"]:
        case.add("in.unit_ids", "index", Numbers([rows], unit_of_row), 0)
    if not all(keep):
        case.add("in.row_weight", "constant", Numbers([rows], keep), 0)
    for n, value in parameters.items():
        case.add(f"param.{n}", "param", value)

    def loss(v):
        per_row = product(positions)
        tokens = row_losses(mlp({**v, "x": Numbers([rows * per_row, 3], x.values)}), targets, smoothing).values
        return Numbers([rows], [sum(tokens[r * per_row:(r + 1) * per_row]) for r in range(rows)])

    losses = [complex(l).real if kept else math.nan for l, kept in zip(loss(parameters).values, keep)]
    case.add("expect.loss", "expect", Numbers([rows], losses))
    members = [[r for r in range(rows) if unit_of_row[r] == u and keep[r]] for u in range(units)]
    gradients = {}
    for n, value in parameters.items():
        by_element = derivatives(loss, parameters, n)
        gradients[n] = [[math.fsum(row[r] for r in own) / (max(len(own), 1) if dp["unit_reduce"] == "mean" else 1)
                         for row in by_element] for own in members]
        case.add(f"expect.grad_unit.{n}", "expect", Numbers([units] + value.shape, sum(gradients[n], [])))
    expect_clipped(case, dp, parameters, gradients)
    case.write(folder)


def expect_clipped(case, dp, parameters, gradients):
    loose = {"f32": [1e-4, 5e-5], "f64": [1e-10, 1e-10]}
    groups, units = dp["groups"], range(dp["units"])
    norms = [[math.sqrt(sum(dot(gradients[n][u], gradients[n][u]) for n in g["params"])) for g in groups]
             for u in units]
    factors = [[factor(dp["rule"], dp["gamma"], g["max_norm"], n) for g, n in zip(groups, row)] for row in norms]
    shape = [len(units), len(groups)]
    case.add("expect.norm", "expect", Numbers(shape, sum(norms, [])), None, loose)
    case.add("expect.clip_factor", "expect", Numbers(shape, sum(factors, [])), None, loose)
    for j, group in enumerate(groups):
        for n in group["params"]:
            total = [math.fsum(factors[u][j] * gradients[n][u][k] for u in units)
                     for k in range(len(parameters[n].values))]
            mean = [t / dp["expected_batch_size"] for t in total]
            for name, values in (("grad_sum", total), ("grad_mean", mean)):
                case.add(f"expect.{name}.{n}", "expect", Numbers(parameters[n].shape, values), None, loose)


def write_dp_steps(folder, rng):
    """Two cases. Users: rows not in the order of their users, one row padding. Tokens: two augmentations of
    each sample, in physical batches whose borders fall inside a sample."""
    first, second = ["fc1.weight", "fc1.bias"], ["fc2.weight", "fc2.bias"]
    write_dp_step(folder, rng, "own_mlp_users", [], [0, 2, 1, 1, 0], {
        "rows": 5, "units": 4, "augmentations": 1, "user_level": True, "unit_reduce": "mean",
        "physical_batches": [3, 2], "rule": "min", "gamma": None, "expected_batch_size": 3.5,
        "groups": [{"params": first, "max_norm": 0.4}, {"params": second, "max_norm": 0.6}],
        "unit_of_row": [1, 0, 1, 3, 3], "row_weight": [1, 1, 1, 1, 0]})
    write_dp_step(folder, rng, "own_tokens_augmented", [2], [0, IGNORED, 2, 1, IGNORED, IGNORED, 1, 1, 0, 2, 2, 0], {
        "rows": 6, "units": 3, "augmentations": 2, "user_level": False, "unit_reduce": "sum",
        "physical_batches": [3, 0, 3], "rule": "automatic", "gamma": 0.05, "expected_batch_size": 3.0,
        "groups": [{"params": first + second, "max_norm": 0.8}],
        "unit_of_row": [0, 0, 1, 1, 2, 2], "row_weight": None})


def write_sgd(folder, rng):
    options = {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "weight_decay": 0.05, "nesterov": True, "maximize": False}
    steps, gamma = 4, 0.5
    rates = [options["lr"] * gamma ** k for k in range(steps)]
    case = CaseFile("optim", "own_sgd", "SGD", optimizer=options, steps=steps,
                    groups=[{"params": ["w"], "overrides": {}}],
                    scheduler={"type": "exponential", "gamma": gamma}, expect_lr=[rates], lr_rtol=1e-9)
    start, grads = draw(rng, [3]), draw(rng, [steps, 3])
    case.add("param.w", "param", start)
    case.add("grad.w", "grad", grads)
    p, momentum, trace = list(start.values), None, []
    for k in range(steps):
        g = [grads[k, i] + options["weight_decay"] * p[i] for i in range(3)]
        momentum = g if momentum is None else [options["momentum"] * m + d for m, d in zip(momentum, g)]
        p = [x - rates[k] * (d + options["momentum"] * m) for x, d, m in zip(p, g, momentum)]
        trace += p
    case.add("expect.param.w", "expect", Numbers([steps, 3], trace))
    case.write(folder)


def write_accountant(folder):
    """Full batches, whose divergence is alpha / (2 sigma^2) in closed form."""
    (folder / "accountant").mkdir(parents=True, exist_ok=True)
    orders = [1.5, 2.0, 4.0, 8.0, 16.0, 32.0]
    # The second epsilon is negative; Opacus does not raise it to 0, as a bound on the total variation would.
    for table, name, sigma, steps, delta in (("own_rdp", "own", 3.0, 5, 1e-5), ("own_rdp_opacus", "opacus", 40.0, 1, 0.05)):
        epsilon = min(steps * a / (2 * sigma**2) + math.log(1 - 1 / a) - (math.log(delta) + math.log(a)) / (a - 1)
                      for a in orders)
        row = {"id": f"{name}_full_batch", "software": "closed form", "accountant": "rdp",
               "query": "epsilon", "relation": "add_or_remove_one", "phases": [{"q": 1.0, "sigma": sigma, "steps": steps}],
               "delta": delta, "orders": name, "value": epsilon,
               "accept": [epsilon - abs(epsilon) * 1e-9, epsilon + abs(epsilon) * 1e-9]}
        written = {"format": 1, "kind": "accountant", "table": table, "software": {}, "orders": {name: orders}, "rows": [row]}
        (folder / "accountant" / f"{table}.json").write_text(json.dumps(written, indent=1) + "\n")


def main(folder):
    rng = random.Random(20)
    write_layer(folder, "own_linear", "Linear", linear, {"x": draw(rng, [3, 4])},
                {"weight": draw(rng, [2, 4]), "bias": draw(rng, [2])}, {"in_features": 4, "out_features": 2}, rng)
    write_layer(folder, "own_conv2d", "Conv2d", conv2d, {"x": draw(rng, [2, 2, 4, 5])},
                {"weight": draw(rng, [3, 2, 3, 2]), "bias": draw(rng, [3])},
                {"in_channels": 2, "out_channels": 3, "kernel_size": [3, 2], "stride": [2, 2], "padding": [1, 1],
                 "dilation": [1, 1], "groups": 1, "padding_mode": "zeros"}, rng)
    write_layer(folder, "own_embedding", "Embedding", embedding, {"x": Numbers([2, 3], [1, 4, 1, 0, 2, 2])},
                {"weight": draw(rng, [5, 3])}, {"num_embeddings": 5, "embedding_dim": 3, "padding_idx": None}, rng, ["x"])
    steps = [{"op": "transpose", "in": {"x": "w"}, "args": {"dim0": 0, "dim1": 1}, "out": {"y": "wt"}},
             {"op": "matmul", "in": {"a": "x", "b": "wt"}, "args": {}, "out": {"y": "a"}},
             {"op": "tanh", "in": {"x": "a"}, "args": {}, "out": {"y": "h"}},
             {"op": "matmul", "in": {"a": "h", "b": "w"}, "args": {}, "out": {"y": "y"}}]
    write_layer(folder, "own_tied_weight", "Program", tied_linear, {"x": draw(rng, [3, 4])}, {"w": draw(rng, [2, 4])},
                {"program": steps, "outputs": ["y"]}, rng)
    write_op(folder, "own_mul_broadcast", "mul", mul, {"a": draw(rng, [2, 3, 1]), "b": draw(rng, [1, 3, 4])}, {}, rng)
    for name, function, args in (("hardsigmoid", hardsigmoid, {}), ("celu", celu, {"alpha": 0.7})):
        write_op(folder, "own_" + name, name, function, {"x": Numbers([5], [-4.0, -1.25, -0.5, 0.75, 3.5])}, args, rng)
    write_op(folder, "own_cross_entropy", "cross_entropy",
             lambda v: row_losses(v["x"], v["target"].values, 0.2),
             {"x": draw(rng, [3, 4]), "target": Numbers([3], [3, 0, 2])},
             {"reduction": "none", "label_smoothing": 0.2, "ignore_index": IGNORED}, rng, ["target"])
    write_dp_steps(folder, rng)
    write_sgd(folder, rng)
    write_accountant(folder)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
