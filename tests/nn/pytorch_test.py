#!/usr/bin/env python3
"""PyTorch's modules and ours take each other's weights and then compute the same, in both directions, with the functions
of docs/how-to/exchange-with-pytorch.md. Skipped where PyTorch or safetensors is missing; in a virtual environment:

    pip install torch safetensors numpy
    python tests/nn/pytorch_test.py build/tests/pytorch_program
"""
import subprocess
import sys
import tempfile

SKIPPED = 77  # Meson's status
try:
    import torch
    from safetensors.torch import load_file, save_file
    from torch import nn
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)


# SAVE
def save_for_sotto(module, path):
    """Parameters by name; named_parameters() has no running statistics, and a tied weight once."""
    save_file({name: p.detach().contiguous() for name, p in module.named_parameters()}, path)
# SAVE


# LOAD
def load_from_sotto(module, path):
    """Throws for a name or a shape that does not fit."""
    module.load_state_dict(load_file(path))
# LOAD


# FUSE
def without_batch_norm(conv, batch_norm):
    """A convolution that computes what both do in evaluation: running statistics become a part of its weights."""
    return torch.nn.utils.fusion.fuse_conv_bn_eval(conv.eval(), batch_norm.eval())
# FUSE


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(x)))


def batch_norm_after_training():
    conv, norm = nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3)
    for _ in range(3):
        norm(conv(torch.randn(16, 4, 6, 6)))
    return conv, norm


def same_twice(module):
    """A call of a module of two inputs."""
    return lambda x: module(x, x)


def cases():
    """Name, module, input, and the call if it is not module(x)."""
    image, sequence, row = torch.randn(3, 4, 6, 6), torch.randn(3, 5, 6), torch.randn(3, 6)
    ids, wide = torch.randint(0, 10, (3, 5)), torch.randn(3, 5, 8)
    yield "Linear", nn.Linear(6, 4), row, None
    bilinear = nn.Bilinear(6, 6, 4)
    yield "Bilinear", bilinear, row, same_twice(bilinear)
    yield "Conv1d", nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), torch.randn(3, 4, 9), None
    yield "Conv2d", nn.Conv2d(4, 6, (3, 2), dilation=(1, 2)), image, None
    yield "Conv3d", nn.Conv3d(2, 3, 2), torch.randn(3, 2, 4, 4, 4), None
    yield "ConvTranspose1d", nn.ConvTranspose1d(4, 6, 3, groups=2), torch.randn(3, 4, 9), None
    yield "ConvTranspose2d", nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), image, None
    yield "ConvTranspose3d", nn.ConvTranspose3d(2, 3, 2), torch.randn(3, 2, 4, 4, 4), None
    yield "GroupNorm", nn.GroupNorm(2, 4), image, None
    yield "LayerNorm", nn.LayerNorm(6), sequence, None
    yield "InstanceNorm2d", nn.InstanceNorm2d(4, affine=True), image, None
    yield "RMSNorm", nn.RMSNorm(6, eps=1e-6), sequence, None
    yield "PReLU", nn.PReLU(4), image, None
    yield "Embedding", nn.Embedding(10, 6, padding_idx=1), ids, None
    yield "EmbeddingBag", nn.EmbeddingBag(10, 6), ids, None
    yield "RNN", nn.RNN(6, 5, num_layers=2, batch_first=True), sequence, None
    yield "GRU", nn.GRU(6, 5, num_layers=2, batch_first=True, bidirectional=True), sequence, None
    yield "LSTM", nn.LSTM(6, 5, num_layers=2, batch_first=True, bidirectional=True), sequence, None
    yield "LSTM with projections", nn.LSTM(6, 5, batch_first=True, proj_size=3), sequence, None
    yield "RNNCell", nn.RNNCell(6, 5), row, None
    yield "GRUCell", nn.GRUCell(6, 5), row, None
    yield "LSTMCell", nn.LSTMCell(6, 5), row, None
    attention = nn.MultiheadAttention(8, 2, add_bias_kv=True, batch_first=True)
    yield "MultiheadAttention", attention, wide, lambda x: attention(x, x, x)
    yield "TransformerEncoderLayer", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), wide, None
    decoder = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    yield "TransformerDecoderLayer", decoder, wide, same_twice(decoder)
    yield "Sequential", nn.Sequential(nn.Conv2d(4, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(48, 2)), image, None
    yield "a module of one's own", Network(), row, None


def result(call, x):
    with torch.no_grad():
        y = call(x)
    return y[0] if isinstance(y, tuple) else y


def differs(name, expected, got):
    """Rounding alone may differ: f32, and sums of some dozen terms."""
    if expected.shape == got.shape and torch.allclose(expected, got, rtol=1e-5, atol=1e-6):
        return []
    return [f"{name}: {expected} and {got}"]


def check(program, folder):
    torch.manual_seed(1)
    all_cases = list(cases())
    for name, module, x, call in all_cases:
        module.eval()
        save_for_sotto(module, f"{folder}/{name}.theirs")
        save_file({"x": x}, f"{folder}/{name}.input")
    conv, norm = batch_norm_after_training()
    image, fused = torch.randn(3, 4, 6, 6), nn.Sequential(without_batch_norm(conv, norm), nn.ReLU())
    save_for_sotto(fused, f"{folder}/a fused batch norm.theirs")
    save_file({"x": image}, f"{folder}/a fused batch norm.input")
    subprocess.run([program, folder], check=True)

    def ours(name):
        return load_file(f"{folder}/{name}")["x"]

    problems = differs("batch norm", result(lambda x: torch.relu(norm(conv(x))), image), ours("a fused batch norm.theirs_y"))
    for name, module, x, call in all_cases:
        problems += differs(f"{name}: PyTorch's weights", result(call or module, x), ours(f"{name}.theirs_y"))
        load_from_sotto(module, f"{folder}/{name}.ours")
        problems += differs(f"{name}: our weights", result(call or module, x), ours(f"{name}.ours_y"))
    return problems


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        found = check(sys.argv[1], made)
    print("\n".join(found))
    sys.exit(1 if found else 0)
