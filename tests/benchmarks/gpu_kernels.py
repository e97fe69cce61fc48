"""The kernels of bench_gpu in PyTorch, on random operands."""
import statistics
import time

CALLS, REPETITIONS = 10, 11  # as in bench_gpu: calls timed together, of which a median is taken


class Kernels:
    def __init__(self, torch, device, name, say):
        self.torch, self.device, self.name, self.say = torch, device, name, say
        self.dtype = torch.bfloat16 if name == "bf16" else torch.float32

    def values(self, *shape):
        return self.torch.randn(shape, dtype=self.dtype, device=self.device)

    def some(self, run):
        for _ in range(CALLS):
            run()
        if self.device != "cpu":
            self.torch.cuda.synchronize()

    def time(self, what, run):
        self.some(run)
        seconds = []
        for _ in range(REPETITIONS):
            begin = time.perf_counter()
            self.some(run)
            seconds.append((time.perf_counter() - begin) / CALLS)
        self.say(by="torch", what=what, dtype=self.name, microseconds=round(statistics.median(seconds) * 1e6, 2))

    def products(self):
        for m, k, n in ((16384, 768, 2304), (16384, 768, 3072), (16384, 3072, 768), (16384, 768, 50257)):
            a, b = self.values(m, k), self.values(n, k).t()
            self.time(f"gemm {m} x {k} x {n}", lambda: a @ b)
        x, w = (self.values(64, 64, s, s).contiguous(memory_format=self.torch.channels_last) for s in (56, 3))
        self.time("conv", lambda: self.torch.nn.functional.conv2d(x, w, padding=1))

    def streams(self):
        F = self.torch.nn.functional
        x, row = self.values(16384, 3072), self.values(3072)
        for what, f in (("copy", self.torch.clone), ("gelu", F.gelu), ("add", lambda x: x + x), ("add row", lambda x: x + row),
                        ("sum of columns", lambda x: x.sum(0)), ("sum of rows", lambda x: x.sum(1)),
                        ("softmax", lambda x: x.softmax(1)), ("normalize", lambda x: F.layer_norm(x, (3072,)))):
            self.time(what, lambda: f(x))

    def attentions(self):
        """Those of GPT-2 small and ViT-B/16."""
        for samples, positions, causal in ((32, 512, True), (64, 197, False)):
            for back in (False, True):
                x = self.values(3, samples, positions, 12, 64).transpose(2, 3)
                q, k, v = (one.detach().requires_grad_(back) for one in x)

                def run():
                    y = self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
                    if back:
                        self.torch.autograd.grad(y.float().sum(), (q, k, v))

                self.time(f"attention {samples} x {positions}" + (", there and back" if back else ""), run)


def report(torch, device, name, say):
    """Times them in a precision: f32, bf16, or tf32, in which there are products alone."""
    kernels = Kernels(torch, device, name, say)
    kernels.products()
    if name != "tf32":
        kernels.streams()
        kernels.attentions()
