#!/usr/bin/env python3
"""Times steps in PyTorch, Opacus and fastDP, and with --kernels the kernels of bench_gpu in PyTorch. Prints one JSON object
a line, with the keys of bench_steps and bench_gpu, and the results of a comparison: a network is timed only if, from the
weights and samples that bench_steps --write has left in a folder, it computes the same in f32: the loss to 0.1 %, the norm
of each tensor's gradient to 1 %, and the sum of the samples' gradients, each clipped, to 1 %: one activation on the other
side of a ReLU's kink is 0.2 % of it. That sum may be up to 5 % shorter besides, since what rounding may take is charged to
our norms (docs/appendix/proofs-rounding.md). A private mode is timed only if its step without noise moves the weights by
that sum. The status is 1 if a network does not compute the same. A mode that fails, for want of memory or of its package
for example, is a line with the reason.

    bench_steps --device cuda --write REFERENCE --models gpt2-small,wrn16
    peers.py --reference REFERENCE --models gpt2-small,wrn16
    peers.py --kernels
"""
import argparse
import gc
import importlib.metadata
import json
import math
import mmap
import pathlib
import statistics
import struct
import subprocess
import sys
import time
import warnings

import peer_private

CASES = pathlib.Path(__file__).with_name("gpu_cases.txt")
PRECISIONS = ("bf16", "tf32", "f32")
MODES = ("ordinary", "channels_last", *peer_private.MODES, "compiled")
MOST = {"loss": 1e-3, "norms": 1e-2, "clipped": 1e-2, "shortened": 0.05}


def words(text):
    return text.split(",")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--reference", type=pathlib.Path, help="the folder of bench_steps --write")
    p.add_argument("--rounded", type=pathlib.Path,
                   help="that of bench_steps --write --precision bf16: says how far each side's sum in bf16 is from that in f32")
    p.add_argument("--kernels", action="store_true", help="times the kernels of bench_gpu")
    p.add_argument("--device", default="cuda", help="default: %(default)s")
    p.add_argument("--cases", type=pathlib.Path, default=CASES, help="default: gpu_cases.txt beside this program")
    p.add_argument("--models", type=words, help="those of the cases that are taken; default: all")
    p.add_argument("--precision", type=words, default=PRECISIONS, help=",".join(PRECISIONS))
    p.add_argument("--modes", type=words, default=MODES,
                   help="ordinary (on a GPU with channels last), channels_last (of images), Opacus' hooks, ew (expanded weights) "
                   "and ghost, fastdp, compiled; default: all")
    p.add_argument("--checked", action="store_true", help="an earlier call has compared: nothing is compared")
    p.add_argument("--warmup", type=int, default=3, help="steps before; default: %(default)s")
    p.add_argument("--steps", type=int, default=10, help="steps of which a median is taken, twice; default: %(default)s")
    p.add_argument("--seconds", type=float, default=0, help="more steps, until so long has passed; default: %(default)s")
    options = p.parse_args()
    for name, given, known in (("precision", options.precision, PRECISIONS), ("modes", options.modes, MODES)):
        if unknown := set(given) - set(known):
            p.error(f"--{name}: not known: {', '.join(sorted(unknown))}")
    if not options.kernels and not options.reference:
        p.error("--reference or --kernels says what is timed")
    return options


def say(**line):
    print(json.dumps(line), flush=True)


def told(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cases(options):
    """The cases wanted: (model, samples, precision, modes), in their order."""
    for line in options.cases.read_text().splitlines():
        model, samples, precision, modes = (line.split() + [""] * 4)[:4]
        if not line.startswith("#") and model in (options.models or [model]) and precision in options.precision:
            yield model, int(samples), precision, words(modes)


def clock_mhz():
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    try:
        return int(subprocess.run(query, capture_output=True, check=True, text=True).stdout.split()[0])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return None


class Reference:
    """A safetensors file of bench_steps --write; its tensors are on the CPU."""

    def __init__(self, torch, path):
        types = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        begin = 8 + struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:begin])
        self.facts = header.pop("__metadata__")
        self.tensors = {}
        for name, entry in header.items():
            self.tensors[name] = torch.frombuffer(data, dtype=types[entry["dtype"]], count=math.prod(entry["shape"]),
                                                  offset=begin + entry["data_offsets"][0]).view(entry["shape"])

    def of_images(self):
        return self.tensors["inputs"].dim() == 4

    def of(self, kind):
        """The tensors KIND/NAME by NAME, as PyTorch's modules name them."""
        return {name.removeprefix(kind + "/").replace("in_proj_", "in_proj."): tensor
                for name, tensor in self.tensors.items() if name.startswith(kind + "/")}

    def batch(self, device, samples=None):
        """The samples, repeated until there are so many, on a device."""
        x, y = self.tensors["inputs"].to(device), self.tensors["labels"].to(device)
        rows = [k % len(x) for k in range(samples or len(x))]
        return x[rows], y[rows]


def clipped_sum(torch, networks, model, x, y, bound):
    """The sum of the samples' gradients, each computed alone and clipped to `bound`."""
    parameters = dict(model.named_parameters())
    sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for n in range(len(x)):
        rows = torch.autograd.grad(networks.mean_loss(model(x[n:n + 1]), y[n:n + 1]), list(parameters.values()))
        norm = sum(row.double().square().sum() for row in rows).sqrt()
        for name, row in zip(sums, rows):
            sums[name] += row * (bound / norm).clamp(max=1).float()
    return sums


def sums_apart(reference, theirs):
    """How far our clipped sum is from theirs, of which it may be a multiple, and how much shorter it is."""
    squared = product = ours_squared = 0
    for name, ours in reference.of("clipped").items():
        a, b = ours.double(), theirs[name].detach().cpu().double()
        squared, product = squared + b.square().sum().item(), product + (a * b).sum().item()
        ours_squared += a.square().sum().item()
    if not squared > 0:
        return {"clipped": math.inf, "shortened": 1}
    factor = product / squared
    rest = math.sqrt(max(0, ours_squared - factor * product) / squared)
    return {"clipped": rest, "shortened": max(1 - factor, 100 * (factor - 1))}


def compared(torch, networks, model, reference):
    """How far the model is from its reference, in f32: the keys of MOST, and the worst tensor."""
    x, y = reference.batch(next(model.parameters()).device)
    loss = networks.mean_loss(model(x), y)
    loss.backward()
    norms = {name: p.grad.double().norm().item() for name, p in model.named_parameters()}
    least = 1e-6 * math.hypot(*norms.values())
    off = {name: abs(norms[name] - ours.item()) / max(norms[name], least) for name, ours in reference.of("norms").items()}
    theirs = clipped_sum(torch, networks, model, x, y, float(reference.facts["clip_bound"]))
    return {"loss": abs(loss.item() / float(reference.facts["loss"]) - 1), "norms": max(off.values()),
            **sums_apart(reference, theirs)}, max(off, key=off.get)


def too_far(off):
    """The measures that are above MOST, in words; NaN is not below either."""
    return ", ".join(f"{what} {value:.3g} > {MOST[what]}" for what, value in off.items() if not value <= MOST[what])


def errors_in_bf16(torch, networks, model, reference, rounded):
    """How far our and PyTorch's clipped sums in bf16 are from ours in f32, whatever their lengths."""
    x, y = reference.batch(next(model.parameters()).device)
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        theirs = clipped_sum(torch, networks, model, x, y, float(reference.facts["clip_bound"]))
    return {"our bf16 error": sums_apart(reference, rounded.of("clipped"))["clipped"],
            "bf16 error": sums_apart(reference, theirs)["clipped"]}


def same_function(torch, networks, name, reference, options):
    """True, and a line, if the network computes what the reference says."""
    device = options.device
    model = networks.NETWORKS[name]().to(device)
    parameters = sum(p.numel() for p in model.parameters())
    ours = sum(value.numel() for value in reference.of("parameters").values())
    line = {"by": "torch", "model": name, "parameters": parameters, "our parameters": ours}
    model.load_state_dict(reference.of("parameters"))
    round_factors(torch, False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        off, worst = compared(torch, networks, model, reference)
    wrong = too_far(off)
    if options.rounded and not wrong:
        off |= errors_in_bf16(torch, networks, model, reference, Reference(torch, options.rounded / f"{name}.safetensors"))
    line |= {"same": not wrong} | {what: float(f"{value:.3g}") for what, value in off.items()}
    say(**line | ({"why": wrong, "worst": worst} if wrong else {}))
    return not wrong


def check_private(torch, networks, options, reference, name, mode):
    """Raises ValueError unless a step without noise, at a learning rate of 1, moves the weights by the clipped sum."""
    samples = len(reference.batch("cpu")[0])
    run, model = step(torch, networks, options, reference, (name, samples, "f32", [mode]), mode, 0.0, 1.0)
    run()
    moved = {key: samples * (reference.of("parameters")[key].to(p.device) - p) for key, p in model.named_parameters()}
    if wrong := too_far(sums_apart(reference, moved)):
        raise ValueError(f"not the clipped sum: {wrong}")


def round_factors(torch, wanted):
    """Rounds f32 operands of products and convolutions to tf32, or not; for convolutions PyTorch does by default."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted


def step(torch, networks, options, reference, case, mode, sigma=peer_private.SIGMA, learning_rate=peer_private.LEARNING_RATE):
    """A function that does a step, and the model that it changes."""
    name, samples, precision, _ = case
    x, y = reference.batch(options.device, samples)
    model = networks.NETWORKS[name]().to(x.device)
    model.load_state_dict(reference.of("parameters"))
    if reference.of_images() and (mode == "channels_last" or mode == "ordinary" and options.device != "cpu"):
        x, model = (one.to(memory_format=torch.channels_last) for one in (x, model))
    if mode in peer_private.MODES:
        model, called, optimizer, loss_of = peer_private.prepared(torch, networks, model, mode, samples, sigma, learning_rate)
    else:
        called = torch.compile(model) if mode == "compiled" else model
        optimizer, loss_of = peer_private.sgd(torch, model, learning_rate), networks.mean_loss
    round_factors(torch, precision == "tf32")

    def run():
        optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(called(x), y)
        loss.backward()
        optimizer.step()

    return run, model


def timed(torch, options, run):
    """Milliseconds of each step, on a GPU by its own events."""
    on_gpu = torch.device(options.device).type == "cuda"

    def mark():
        if not on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    for _ in range(options.warmup):
        run()
    marks, start = [mark()], time.perf_counter()
    while len(marks) <= 2 * options.steps or time.perf_counter() - start < options.seconds:
        run()
        marks.append(mark())
    if not on_gpu:
        return [(b - a) * 1e3 for a, b in zip(marks, marks[1:])]
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def measured(torch, networks, options, reference, case, mode):
    """What is known of a case's step in a mode: its times, or why there are none."""
    gc.collect()
    if options.device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = clock_mhz()
    try:
        if mode in peer_private.MODES and not options.checked:
            check_private(torch, networks, options, reference, case[0], mode)
        times = timed(torch, options, step(torch, networks, options, reference, case, mode)[0])
    except torch.OutOfMemoryError:
        return {"failed": "out of memory"}
    except Exception as error:  # whatever a peer cannot do is a result
        return {"failed": told(error)}
    peak = torch.cuda.max_memory_allocated() if options.device != "cpu" else None
    return {"ms_per_step": statistics.median(times), "steps": len(times), "peak_bytes": peak,
            "ms_halves": [statistics.median(times[:len(times) // 2]), statistics.median(times[len(times) // 2:])],
            "clock_mhz": [before, clock_mhz()]}


def steps(torch, options):
    """Compares, then times. The number of networks that compute something else."""
    import peer_networks as networks
    torch.backends.cudnn.benchmark = True  # PyTorch's best
    wanted = list(cases(options))
    references, same = {}, {}
    for name in dict.fromkeys(options.models or [case[0] for case in wanted]):
        try:
            references[name] = Reference(torch, options.reference / f"{name}.safetensors")
            same[name] = options.checked or same_function(torch, networks, name, references[name], options)
        except Exception as error:  # the others are compared nevertheless
            say(by="torch", model=name, same=False, why=told(error))
            same[name] = False
    for mode in options.modes:
        for case in wanted:
            if same[case[0]] and mode in case[3] and (mode != "channels_last" or references[case[0]].of_images()):
                package = peer_private.MODES.get(mode, "torch")
                line = {"by": package.lower(), "version": version(package), "model": case[0], "mode": mode, "batch": case[1],
                        "device": options.device, "precision": case[2]}
                say(**line, **measured(torch, networks, options, references[case[0]], case, mode))
    return list(same.values()).count(False)


def kernels(torch, options):
    """Kernels in f32, bf16 and tf32 (f32 values whose operands are rounded in products and convolutions)."""
    import gpu_kernels
    for name in options.precision:
        round_factors(torch, name == "tf32")
        gpu_kernels.report(torch, options.device, name, say)


def main():
    options = arguments()
    warnings.filterwarnings("ignore")
    try:
        import torch
    except ImportError as error:
        print(f"no PyTorch: {error}")
        return 0
    if options.device != "cpu" and not torch.cuda.is_available():
        print("no GPU that PyTorch can use")
        return 0
    if options.kernels:
        kernels(torch, options)
    return 1 if options.reference and steps(torch, options) else 0


if __name__ == "__main__":
    sys.exit(main())
