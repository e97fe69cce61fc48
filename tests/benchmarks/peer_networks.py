"""The networks of bench_steps in PyTorch: functions, and names and shapes of parameters, are its own."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.in_proj, self.out_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x):
        q, k, v = self.in_proj(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out_proj(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Tokens(nn.Module):
    """[n, c, h, w] to [n, h w, c]."""

    def forward(self, x):
        return x.flatten(2).transpose(1, 2)


class Mean(nn.Module):
    def __init__(self, *axes):
        super().__init__()
        self.axes = axes

    def forward(self, x):
        return x.mean(self.axes)


class Transformer(nn.Sequential):
    """Layers in order. An embedding that meets features is that of positions, which are added to them."""
    # Opacus wants the positions of each sample.
    of_each_sample = False

    def forward(self, x):
        for layer in self:
            if isinstance(layer, nn.Embedding) and x.is_floating_point():
                positions = torch.arange(x.shape[1], device=x.device)
                x = x + layer(positions.repeat(len(x) if self.of_each_sample else 1, 1))
            else:
                x = layer(x)
        return x


def causal(words, length, width, heads, depth):
    blocks = [Block(width, heads, True) for _ in range(depth)]
    return Transformer(nn.Embedding(words, width), nn.Embedding(length, width), *blocks, nn.LayerNorm(width),
                       nn.Linear(width, words))


def vision(side, patch, width, heads, depth, classes):
    blocks = [Block(width, heads, False) for _ in range(depth)]
    return Transformer(nn.Conv2d(3, width, patch, patch), Tokens(), nn.Embedding((side // patch) ** 2, width), *blocks,
                       nn.LayerNorm(width), Mean(1), nn.Linear(width, classes))


class Residual(nn.Module):
    """Convolutions of (inputs, outputs, kernel, stride), each with its normalisation, beside the input."""

    def __init__(self, convs, groups):
        super().__init__()
        self.inplace = True
        self.convs, inputs, outputs = len(convs), convs[0][0], convs[-1][1]
        for k, (i, o, kernel, stride) in enumerate(convs, 1):
            setattr(self, f"conv{k}", nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False))
            setattr(self, f"bn{k}", nn.GroupNorm(groups, o))
        stride = math.prod(conv[3] for conv in convs)
        if inputs != outputs or stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(groups, outputs))

    def forward(self, x):
        y = x
        for k in range(1, self.convs + 1):
            y = getattr(self, f"bn{k}")(getattr(self, f"conv{k}")(y if k == 1 else F.relu(y, self.inplace)))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x), self.inplace)


def basic(i, width, stride):
    return (i, width, 3, stride), (width, width, 3, 1)


def bottleneck(i, width, stride):
    return (i, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1)


class ResNet(nn.Module):
    def __init__(self, depths, width, groups, classes, convs=bottleneck, large=True):
        super().__init__()
        self.inplace = True
        stem = (7, 2, 3) if large else (3, 1, 1)
        self.conv1, self.bn1 = nn.Conv2d(3, width, *stem, bias=False), nn.GroupNorm(groups, width)
        channels, self.stages, self.large = width, len(depths), large
        for stage, depth in enumerate(depths):
            blocks = nn.Sequential()
            for k in range(depth):
                of_block = convs(channels, width << stage, 2 if stage > 0 and k == 0 else 1)
                blocks.append(Residual(of_block, groups))
                channels = of_block[-1][1]
            setattr(self, f"layer{stage + 1}", blocks)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), self.inplace)
        if self.large:
            x = F.max_pool2d(x, 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


class StandardizedConv(nn.Module):
    """De et al. 2022: weights standardised over their fan-in, divided by its root, with a gain for each channel."""

    def __init__(self, i, o, kernel, stride):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(o, i, kernel, kernel)), nn.Parameter(torch.zeros(o))
        self.gain = nn.Parameter(torch.ones(o, 1, 1, 1))
        self.stride = stride

    def forward(self, x):
        fan_in = self.weight[0].numel()
        w = F.layer_norm(self.weight.flatten(1), (fan_in,), eps=1e-4 / fan_in).view_as(self.weight)
        return F.conv2d(x, w * (self.gain / math.sqrt(fan_in)), self.bias, self.stride, self.weight.shape[-1] // 2)


class ReluNormConv(nn.Module):
    def __init__(self, i, o, kernel, stride):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(16, i), StandardizedConv(i, o, kernel, stride)

    def forward(self, x):
        return self.conv(self.norm(F.relu(x)))


class WideBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.first, self.second = ReluNormConv(i, o, 3, stride), ReluNormConv(o, o, 3, 1)
        if i != o:
            self.shortcut = ReluNormConv(i, o, 1, stride)

    def forward(self, x):
        return self.second(self.first(x)) + (self.shortcut(x) if hasattr(self, "shortcut") else x)


class WideResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.blocks, channels = StandardizedConv(3, 16, 3, 1), nn.Sequential(), 16
        for width in (64, 128, 256):
            self.blocks.extend((WideBlock(channels, width, 1 if width == 64 else 2), WideBlock(width, width, 1)))
            channels = width
        self.norm, self.fc = nn.GroupNorm(16, channels), nn.Linear(channels, 10)

    def forward(self, x):
        return self.fc(self.norm(F.relu(self.blocks(self.conv(x)))).mean((2, 3)))


class Mnist(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 8, 2, 3), nn.Conv2d(16, 32, 4, 2)
        self.dense1, self.dense2 = nn.Linear(512, 32), nn.Linear(32, 10)

    def forward(self, x):
        for conv in (self.conv1, self.conv2):
            x = F.max_pool2d(F.relu(conv(x)), 2, 1)
        return self.dense2(F.relu(self.dense1(x.flatten(1))))


class MeanOutput(nn.Module):
    """The mean over time of the outputs of an LSTM, which come with its last state."""

    def forward(self, outputs_and_state):
        return outputs_and_state[0].mean(1)


def cifar():
    layers, channels = [], 3
    for width in (32, 64, 128):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                   nn.AvgPool2d(2, 2)]
        channels = width
    return nn.Sequential(*layers, nn.Conv2d(channels, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 10, 3, padding=1), Mean(2, 3))


WORDS = 10004  # of the networks for texts
NETWORKS = {
    "logreg": lambda: nn.Linear(104, 1), "ffnn": lambda: nn.Sequential(nn.Linear(104, 50), nn.ReLU(), nn.Linear(50, 2)),
    "mnist": Mnist, "cifar10": cifar, "embed": lambda: nn.Sequential(nn.Embedding(WORDS, 16), Mean(1), nn.Linear(16, 2)),
    "lstm": lambda: nn.Sequential(nn.Embedding(WORDS, 100), nn.LSTM(100, 100, batch_first=True), MeanOutput(),
                                  nn.Linear(100, 2)),
    "resnet18": lambda: ResNet((2, 2, 2, 2), 64, 32, 10, basic, large=False), "wrn16": WideResNet,
    "vit": lambda: vision(32, 4, 192, 3, 12, 10), "gpt2": lambda: causal(65, 128, 384, 6, 6),
    "gpt2-small": lambda: causal(50257, 512, 768, 12, 12), "gpt2-1024": lambda: causal(50257, 1024, 768, 12, 12),
    "gpt2-256": lambda: causal(50257, 256, 768, 12, 12),
    "vit-b16": lambda: vision(224, 16, 768, 12, 12, 1000), "resnet50-224": lambda: ResNet((3, 4, 6, 3), 64, 32, 1000),
    "gpt2-tiny": lambda: causal(50, 16, 32, 2, 2), "vit-tiny": lambda: vision(32, 8, 32, 2, 2, 10),
    "resnet-tiny": lambda: ResNet((1, 1, 1, 1), 8, 4, 10)}


def losses(logits, labels):
    """[n]: of two classes by one logit, of several, or the mean over positions."""
    if logits.shape[-1] == 1:
        return F.binary_cross_entropy_with_logits(logits.squeeze(-1), labels.to(logits.dtype), reduction="none")
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none").view(len(logits), -1).mean(1)


def mean_loss(logits, labels):
    return losses(logits, labels).mean()
