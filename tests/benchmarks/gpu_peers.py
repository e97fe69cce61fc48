#!/usr/bin/env python3
"""Times the kernels and steps of bench_gpu and bench_steps in PyTorch, and the private step of Opacus where it can be
imported. Prints one JSON object a line, with the names that gpu_results.py uses. A package that cannot be imported is
named in one line and left out.

    gpu_peers.py                          the first GPU
    gpu_peers.py --device cpu --only step
"""
import argparse
import json
import statistics
import time
import warnings

ROWS = 512  # images of a step, as in bench_gpu
# The networks of bench_steps and the samples in a step, as in gpu.sh.
LARGE = {"gpt2-small": 32, "vit-b16": 256, "resnet50-224": 256}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda", help="default: %(default)s")
    p.add_argument("--only", default="", help="only what has this in its name")
    p.add_argument("--calls", type=int, default=10, help="calls timed together; default: %(default)s")
    p.add_argument("--repetitions", type=int, default=11, help="medians are of so many; default: %(default)s")
    p.add_argument("--samples", type=int, help="in a step of a large network; default: as in gpu.sh")
    return p.parse_args()


class Timer:
    def __init__(self, torch, options):
        self.torch, self.options = torch, options

    def some(self, run):
        for _ in range(self.options.calls):
            run()
        if self.torch.device(self.options.device).type == "cuda":
            self.torch.cuda.synchronize()

    def report(self, by, what, dtype, make):
        """`make` returns the function to time; it is called only for a wanted measurement."""
        if self.options.only not in what:
            return
        run = make()
        self.some(run)
        seconds = []
        for _ in range(self.options.repetitions):
            begin = time.perf_counter()
            self.some(run)
            seconds.append((time.perf_counter() - begin) / self.options.calls)
        middle = round(statistics.median(seconds) * 1e6, 2)
        print(json.dumps({"by": by, "what": what, "dtype": dtype, "microseconds": middle}), flush=True)


def round_factors(torch, wanted):
    """Rounds f32 operands of products and convolutions to tf32, or not; for convolutions PyTorch does by default."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted


def kernels(torch, timer, device, name):
    """Kernels in f32, bf16 or tf32 (f32 values whose operands are rounded in products and convolutions)."""
    dtype = torch.bfloat16 if name == "bf16" else torch.float32
    round_factors(torch, name == "tf32")
    F = torch.nn.functional

    def values(*shape):
        return torch.full(shape, 0.01, dtype=dtype, device=device)

    def report(what, make):
        timer.report("torch", what, name, make)

    def product(m, k, n):
        a, b = values(m, k), values(n, k).t()
        return lambda: a @ b

    def on(x, f):
        return lambda: f(x)

    def convolution():
        x, w = (values(64, 64, s, s).contiguous(memory_format=torch.channels_last) for s in (56, 3))
        return lambda: F.conv2d(x, w, padding=1)

    for m, k, n in ((16384, 768, 2304), (16384, 768, 3072), (16384, 3072, 768), (16384, 768, 50257)):
        report(f"gemm {m} x {k} x {n}", lambda: product(m, k, n))
    report("conv", convolution)
    if name == "tf32":
        return
    x, row = values(16384, 3072), values(3072)
    for what, f in (("copy", torch.clone), ("gelu", F.gelu), ("add", lambda x: x + x), ("add row", lambda x: x + row),
                    ("sum of columns", lambda x: x.sum(0)), ("sum of rows", lambda x: x.sum(1)),
                    ("softmax", lambda x: x.softmax(1)), ("normalize", lambda x: F.layer_norm(x, (3072,)))):
        report(what, lambda: on(x, f))


def attentions(torch, timer, device, name):
    """The attentions of GPT-2 small and ViT-B/16, in the sizes of bench_gpu."""
    dtype = torch.bfloat16 if name == "bf16" else torch.float32

    def attend(samples, positions, causal, back):
        x = torch.full((samples, positions, 12, 64), 0.01, dtype=dtype, device=device).transpose(1, 2)
        q, k, v = (x.detach().requires_grad_(back) for _ in range(3))

        def run():
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            if back:
                torch.autograd.grad(y.float().sum(), (q, k, v))

        return run

    for samples, positions, causal in ((32, 512, True), (64, 197, False)):
        for back in (False, True):
            what = f"attention {samples} x {positions}" + (", there and back" if back else "")
            timer.report("torch", what, name, lambda: attend(samples, positions, causal, back))


def small_network(torch, device):
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)


def blocks(torch, width, heads, depth):
    layer = torch.nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0, activation="gelu", batch_first=True, norm_first=True)
    return torch.nn.TransformerEncoder(layer, depth, torch.nn.LayerNorm(width), enable_nested_tensor=False)


def causal_transformer(torch, words=50257, length=512, width=768):
    class Causal(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Embedding(length, width)
            self.blocks, self.out = blocks(torch, width, 12, 12), torch.nn.Linear(width, words)

        def forward(self, ids):
            x = self.words(ids) + self.places.weight
            mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device=ids.device)
            return self.out(self.blocks(x, mask=mask, is_causal=True)).flatten(0, 1)

    def batch(n, device):
        ids = torch.randint(0, words, (2, n, length), device=device)
        return ids[0], ids[1].flatten()

    return Causal(), batch


def image_batch(torch):
    def batch(n, device):
        return torch.randn(n, 3, 224, 224, device=device), torch.randint(0, 1000, (n,), device=device)

    return batch


def vision_transformer(torch, width=768, patch=16):
    class Vision(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = torch.nn.Conv2d(3, width, patch, patch)
            self.places = torch.nn.Parameter(torch.randn((224 // patch) ** 2, width) * 0.02)
            self.blocks, self.out = blocks(torch, width, 12, 12), torch.nn.Linear(width, 1000)

        def forward(self, x):
            return self.out(self.blocks(self.patches(x).flatten(2).transpose(1, 2) + self.places).mean(1))

    return Vision(), image_batch(torch)


def resnet50(torch):
    nn = torch.nn

    def normed(i, o, kernel, stride=1):
        return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.GroupNorm(32, o))

    class Bottleneck(nn.Module):
        def __init__(self, i, width, stride):
            super().__init__()
            self.main = nn.Sequential(normed(i, width, 1), nn.ReLU(), normed(width, width, 3, stride), nn.ReLU(),
                                      normed(width, 4 * width, 1))
            self.side = normed(i, 4 * width, 1, stride) if i != 4 * width or stride != 1 else nn.Identity()

        def forward(self, x):
            return torch.relu(self.main(x) + self.side(x))

    layers, channels = [normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for k in range(depth):
            layers.append(Bottleneck(channels, 64 << stage, 2 if stage > 0 and k == 0 else 1))
            channels = 256 << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last), image_batch(torch)


def step(torch, model, optimizer, x, y, dtype=None):
    def run():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    return run


def small_batch(torch, device):
    return torch.full((ROWS, 1, 28, 28), 0.01, device=device), torch.zeros(ROWS, dtype=torch.long, device=device)


def ordinary(torch, device):
    model = small_network(torch, device)
    return step(torch, model, torch.optim.SGD(model.parameters(), lr=0.01), *small_batch(torch, device))


def private(torch, opacus, device):
    model = opacus.GradSampleModule(small_network(torch, device))
    plain = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = opacus.optimizers.DPOptimizer(plain, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=ROWS)
    return step(torch, model, optimizer, *small_batch(torch, device))


def large(torch, device, make, samples):
    model, batch = make(torch)
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return step(torch, model, optimizer, *batch(samples, device), dtype=torch.bfloat16)


def large_steps(torch, timer, device):
    makers = {"gpt2-small": causal_transformer, "vit-b16": vision_transformer, "resnet50-224": resnet50}
    for name, samples in LARGE.items():
        samples = timer.options.samples or samples
        what = f"{name} ordinary step, batch {samples}"
        try:
            timer.report("torch", what, "bf16", lambda: large(torch, device, makers[name], samples))
        except torch.OutOfMemoryError as error:
            print(f"{what}: {error}")


def main():
    options = arguments()
    warnings.filterwarnings("ignore")
    try:
        import torch
    except ImportError as error:
        return print(f"no PyTorch: {error}")
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        return print("no GPU that PyTorch can use")
    timer = Timer(torch, options)
    for name in ("tf32", "bf16", "f32"):
        kernels(torch, timer, device, name)
        if name != "tf32":
            attentions(torch, timer, device, name)
    timer.report("torch", "ordinary step", "f32", lambda: ordinary(torch, device))
    try:
        import opacus
        timer.report("opacus", "private step", "f32", lambda: private(torch, opacus, device))
    except ImportError as error:
        print(f"no Opacus: {error}")
    large_steps(torch, timer, device)


if __name__ == "__main__":
    main()
