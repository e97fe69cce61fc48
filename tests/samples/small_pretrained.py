"""Small models in the files of their first publishers, with random weights, written without their software."""

import json
import os
import random
import struct


def write_safetensors(path, tensors):
    """Writes {name: (shape, values)} in f32; this writer is independent of the library."""
    header, data, at = {}, [], 0
    for name, (shape, values) in sorted(tensors.items()):
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + 4 * len(values)]}
        data.append(struct.pack(f"<{len(values)}f", *values))
        at += 4 * len(values)
    head = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + b"".join(data))


class Weights:
    """Tensors of normal numbers, of deviation 0.2; norms are ones and zeros."""

    def __init__(self, seed):
        self.random, self.tensors = random.Random(seed), {}

    def add(self, name, *shape):
        count = 1
        for size in shape:
            count *= size
        self.tensors[name] = (shape, [self.random.gauss(0, 0.2) for _ in range(count)])

    def linear(self, name, out, inner):
        self.add(name + ".weight", out, inner)
        self.add(name + ".bias", out)

    def norm(self, name, width):
        self.tensors[name + ".weight"] = ((width,), [1.0] * width)
        self.tensors[name + ".bias"] = ((width,), [0.0] * width)


def write_bert(folder, words, width=16, layers=2, seed=1):
    """A bare BERT, as sentence encoders are published, whose vocabulary is these words."""
    os.makedirs(folder)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(vocabulary) + "\n")
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"architectures": ["BertModel"], "model_type": "bert", "hidden_size": width,
                   "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 2 * width,
                   "max_position_embeddings": 32, "vocab_size": len(vocabulary), "type_vocab_size": 2}, file)
    weights = Weights(seed)
    for table, rows in (("word", len(vocabulary)), ("position", 32), ("token_type", 2)):
        weights.add(f"embeddings.{table}_embeddings.weight", rows, width)
    weights.norm("embeddings.LayerNorm", width)
    for k in range(layers):
        layer = f"encoder.layer.{k}."
        for part in ("query", "key", "value"):
            weights.linear(layer + "attention.self." + part, width, width)
        weights.linear(layer + "attention.output.dense", width, width)
        weights.norm(layer + "attention.output.LayerNorm", width)
        weights.linear(layer + "intermediate.dense", 2 * width, width)
        weights.linear(layer + "output.dense", width, 2 * width)
        weights.norm(layer + "output.LayerNorm", width)
    weights.linear("pooler.dense", width, width)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights.tensors)


def byte_characters():
    """GPT-2's characters for the 256 bytes, in the order of the bytes."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in own else chr(next(others)) for b in range(256)]


def write_gpt2(folder, width=16, layers=2, seed=1):
    """A GPT-2 whose tokens are the bytes and <|endoftext|>."""
    os.makedirs(folder)
    vocabulary = {token: k for k, token in enumerate([*byte_characters(), "<|endoftext|>"])}
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as file:
        json.dump(vocabulary, file, ensure_ascii=False)
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as file:
        file.write("#version: 0.2\n")
    special = {name: "<|endoftext|>" for name in ("bos_token", "eos_token", "unk_token")}
    with open(os.path.join(folder, "special_tokens_map.json"), "w", encoding="utf-8") as file:
        json.dump(special, file)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": width, "n_head": 2,
                   "n_layer": layers, "n_positions": 64, "vocab_size": len(vocabulary),
                   "bos_token_id": 256, "eos_token_id": 256}, file)
    weights = Weights(seed)
    weights.add("wte.weight", len(vocabulary), width)
    weights.add("wpe.weight", 64, width)
    for k in range(layers):
        block = f"h.{k}."
        weights.norm(block + "ln_1", width)
        weights.norm(block + "ln_2", width)
        for name, inner, out in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                 ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
            weights.add(block + name + ".weight", inner, out)
            weights.add(block + name + ".bias", out)
    weights.norm("ln_f", width)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights.tensors)


def write_resnet(path, width=8, classes=3, seed=1):
    """A ResNet of one basic block a stage, in torchvision's names, with statistics of its batch norms."""
    weights = Weights(seed)

    def batch_norm(name, channels):
        weights.norm(name, channels)
        weights.tensors[name + ".running_mean"] = ((channels,), [0.1] * channels)
        weights.tensors[name + ".running_var"] = ((channels,), [2.0] * channels)

    weights.add("conv1.weight", width, 3, 7, 7)
    batch_norm("bn1", width)
    inner = width
    for stage in range(4):
        block, out = f"layer{stage + 1}.0.", width << stage
        weights.add(block + "conv1.weight", out, inner, 3, 3)
        batch_norm(block + "bn1", out)
        weights.add(block + "conv2.weight", out, out, 3, 3)
        batch_norm(block + "bn2", out)
        if stage > 0:
            weights.add(block + "downsample.0.weight", out, inner, 1, 1)
            batch_norm(block + "downsample.1", out)
        inner = out
    weights.linear("fc", classes, inner)
    write_safetensors(path, weights.tensors)


def write_vit(folder, side=16, patch=8, width=16, layers=2, classes=3, seed=1):
    """A ViT in transformers' names, with a mean of pictures that no other has."""
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"architectures": ["ViTForImageClassification"], "model_type": "vit", "image_size": side,
                   "patch_size": patch, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 2,
                   "intermediate_size": 2 * width, "id2label": {str(k): f"LABEL_{k}" for k in range(classes)}}, file)
    with open(os.path.join(folder, "preprocessor_config.json"), "w", encoding="utf-8") as file:
        json.dump({"size": {"height": side, "width": side}, "image_mean": [0.25] * 3, "image_std": [0.5] * 3}, file)
    weights = Weights(seed)
    weights.add("vit.embeddings.cls_token", 1, 1, width)
    weights.add("vit.embeddings.position_embeddings", 1, (side // patch) ** 2 + 1, width)
    weights.add("vit.embeddings.patch_embeddings.projection.weight", width, 3, patch, patch)
    weights.add("vit.embeddings.patch_embeddings.projection.bias", width)
    for k in range(layers):
        layer = f"vit.encoder.layer.{k}."
        weights.norm(layer + "layernorm_before", width)
        for part in ("query", "key", "value"):
            weights.linear(layer + "attention.attention." + part, width, width)
        weights.linear(layer + "attention.output.dense", width, width)
        weights.norm(layer + "layernorm_after", width)
        weights.linear(layer + "intermediate.dense", 2 * width, width)
        weights.linear(layer + "output.dense", width, 2 * width)
    weights.norm("vit.layernorm", width)
    weights.linear("classifier", classes, width)
    write_safetensors(os.path.join(folder, "model.safetensors"), weights.tensors)
