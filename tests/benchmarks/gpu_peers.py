#!/usr/bin/env python3
"""Times the steps of gpu_cases.txt in PyTorch and Opacus, and with --kernels the kernels of bench_gpu in PyTorch. Prints
one JSON object a line, with the keys of bench_steps and bench_gpu, and the results of a comparison: a network is timed
only if, from the weights and samples that bench_steps --write has left in a folder, it computes the same in f32: the loss
to 0.1 %, the norm of each tensor's gradient to 1 %, and the sum of the samples' gradients, each clipped, to 1 %: one
activation on the other side of a ReLU's kink is 0.2 % of it. That sum may be up to 5 % shorter besides, since what
rounding may take is charged to our norms (docs/appendix/proofs-rounding.md). The status is 1 if one does not compute the
same. A mode that fails, for want of memory for example, is a line with the reason.

    bench_steps --device cuda --write REFERENCE --models gpt2-small,wrn16
    gpu_peers.py --reference REFERENCE --models gpt2-small,wrn16
    gpu_peers.py --kernels
"""
import argparse
import gc
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

CASES = pathlib.Path(__file__).with_name("gpu_cases.txt")
PRECISIONS = ("bf16", "tf32", "f32")
MODES = ("ordinary", "hooks", "ghost", "compiled")
MOST = {"loss": 1e-3, "norms": 1e-2, "clipped": 1e-2, "shortened": 0.05}
LEARNING_RATE, SIGMA, BOUND = 0.01, 1.1, 1.0  # as in bench_steps


def words(text):
    return text.split(",")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--reference", type=pathlib.Path, help="the folder of bench_steps --write")
    p.add_argument("--kernels", action="store_true", help="times the kernels of bench_gpu")
    p.add_argument("--device", default="cuda", help="default: %(default)s")
    p.add_argument("--cases", type=pathlib.Path, default=CASES, help="default: gpu_cases.txt beside this program")
    p.add_argument("--models", type=words, help="those of the cases that are taken; default: all")
    p.add_argument("--precision", type=words, default=PRECISIONS, help=",".join(PRECISIONS))
    p.add_argument("--modes", type=words, default=MODES,
                   help="ordinary, hooks (Opacus, materialised), ghost (Opacus, fast gradient clipping), compiled; default: all")
    p.add_argument("--warmup", type=int, default=3, help="steps before; default: %(default)s")
    p.add_argument("--steps", type=int, default=10, help="steps of which a median is taken, twice; default: %(default)s")
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
    """The sum of the samples' gradients, each clipped to `bound`, by torch.func."""
    values = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values, x, y):
        return networks.mean_loss(torch.func.functional_call(model, values, (x[None],)), y[None])

    sums = {name: torch.zeros_like(p) for name, p in values.items()}
    for n in range(0, len(x), 2):
        rows = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(values, x[n:n + 2], y[n:n + 2])
        norms = sum(row.flatten(1).double().square().sum(1) for row in rows.values()).sqrt()
        factors = (bound / norms).clamp(max=1).float()
        for name, row in rows.items():
            sums[name] += torch.einsum("n,n...->...", factors, row)
    return sums


def compared(torch, networks, model, reference):
    """How far the model is from its reference, in f32: the keys of MOST, and the worst tensor."""
    x, y = reference.batch(next(model.parameters()).device)
    loss = networks.mean_loss(model(x), y)
    loss.backward()
    norms = {name: p.grad.double().norm().item() for name, p in model.named_parameters()}
    least = 1e-6 * math.hypot(*norms.values())
    off = {name: abs(norms[name] - ours.item()) / max(norms[name], least) for name, ours in reference.of("norms").items()}
    theirs = clipped_sum(torch, networks, model, x, y, float(reference.facts["clip_bound"]))
    squared = product = ours_squared = 0
    for name, ours in reference.of("clipped").items():
        a, b = ours.to(x.device).double(), theirs[name].double()
        squared, product = squared + b.square().sum().item(), product + (a * b).sum().item()
        ours_squared += a.square().sum().item()
    factor = product / squared
    rest = math.sqrt(max(0, ours_squared - factor * product) / squared)
    return {"loss": abs(loss.item() / float(reference.facts["loss"]) - 1), "norms": max(off.values()), "clipped": rest,
            "shortened": max(1 - factor, 100 * (factor - 1))}, max(off, key=off.get)


def same_function(torch, networks, name, reference, device):
    """True, and a line, if the network computes what the reference says."""
    model = networks.NETWORKS[name]().to(device)
    parameters = sum(p.numel() for p in model.parameters())
    ours = sum(value.numel() for value in reference.of("parameters").values())
    line = {"by": "torch", "model": name, "parameters": parameters, "our parameters": ours}
    model.load_state_dict(reference.of("parameters"))
    round_factors(torch, False)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        off, worst = compared(torch, networks, model, reference)
    # NaN is not below either.
    wrong = [f"{what} {off[what]:.3g} > {most}" for what, most in MOST.items() if not off[what] <= most]
    line |= {"same": not wrong} | {what: float(f"{value:.3g}") for what, value in off.items()}
    say(**line | ({"why": ", ".join(wrong), "worst": worst} if wrong else {}))
    return not wrong


def round_factors(torch, wanted):
    """Rounds f32 operands of products and convolutions to tf32, or not; for convolutions PyTorch does by default."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted


def with_opacus(torch, networks, model, optimizer, mode, samples):
    """The model with per-sample gradients, its optimizer that adds noise, and a function that gives its loss."""
    import opacus
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    model.of_each_sample = True
    settings = {"noise_multiplier": SIGMA, "max_grad_norm": BOUND, "expected_batch_size": samples}
    if mode == "hooks":
        model = opacus.GradSampleModule(model)
        return model, opacus.optimizers.DPOptimizer(optimizer, **settings), networks.mean_loss

    class Criterion(torch.nn.Module):
        reduction = "mean"

        def forward(self, logits, labels):
            losses = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
            return losses.view(len(logits), -1).mean(1)

    model = GradSampleModuleFastGradientClipping(model, max_grad_norm=BOUND, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(optimizer, **settings)
    return model, optimizer, DPLossFastGradientClipping(model, optimizer, Criterion())


def step(torch, networks, options, reference, case, mode):
    """A function that does a step."""
    name, samples, precision, _ = case
    x, y = reference.batch(options.device, samples)
    model = networks.NETWORKS[name]().to(x.device)
    model.load_state_dict(reference.of("parameters"))
    if x.dim() == 4 and mode == "ordinary":
        x, model = (one.to(memory_format=torch.channels_last) for one in (x, model))
    optimizer, loss_of = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, foreach=True), networks.mean_loss
    if mode in ("hooks", "ghost"):
        model, optimizer, loss_of = with_opacus(torch, networks, model, optimizer, mode, samples)
    if mode == "compiled":
        model = torch.compile(model)
    round_factors(torch, precision == "tf32")

    def run():
        optimizer.zero_grad()
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()

    return run


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
    marks = [mark()]
    for _ in range(2 * options.steps):
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
        times = timed(torch, options, step(torch, networks, options, reference, case, mode))
    except torch.OutOfMemoryError:
        return {"failed": "out of memory"}
    except Exception as error:  # whatever a peer cannot do is a result
        return {"failed": told(error)}
    peak = torch.cuda.max_memory_allocated() if options.device != "cpu" else None
    return {"ms_per_step": statistics.median(times), "steps": len(times), "peak_bytes": peak,
            "ms_halves": [statistics.median(times[:options.steps]), statistics.median(times[options.steps:])],
            "clock_mhz": [before, clock_mhz()]}


def steps(torch, options):
    """Compares, then times. The number of networks that compute something else."""
    import gpu_networks as networks
    torch.backends.cudnn.benchmark = True  # PyTorch's best
    wanted = list(cases(options))
    references, same = {}, {}
    for name in dict.fromkeys(options.models or [case[0] for case in wanted]):
        try:
            references[name] = Reference(torch, options.reference / f"{name}.safetensors")
            same[name] = same_function(torch, networks, name, references[name], options.device)
        except Exception as error:  # the others are compared nevertheless
            say(by="torch", model=name, same=False, why=told(error))
            same[name] = False
    for mode in options.modes:
        for case in wanted:
            if same[case[0]] and mode in case[3]:
                line = {"by": "torch" if mode in ("ordinary", "compiled") else "opacus", "model": case[0], "mode": mode,
                        "batch": case[1], "device": options.device, "precision": case[2]}
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
