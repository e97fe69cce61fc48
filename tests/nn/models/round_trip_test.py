#!/usr/bin/env python3
"""Models that transformers and timm wrote are loaded, changed and saved by us; both packages load what we saved, and
compute the logits that we compute. Skipped where the packages are missing; in a virtual environment:

    pip install torch transformers timm safetensors numpy
    python tests/nn/models/round_trip_test.py build/tests/pretrained_program
"""
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77  # Meson's status
try:
    import timm
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from timm.models._hub import save_for_hf
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)

VOCABULARY, ROWS, LENGTH, SIDE = 40, 3, 9, 16
TEXT = dict(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
            max_position_embeddings=16)
IMAGE = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=SIDE,
             patch_size=4)
T = transformers
# name: class, config.
TRANSFORMERS = {
    "bert": (T.BertForSequenceClassification, T.BertConfig(**TEXT, num_labels=3)),
    "bert, body alone": (T.BertModel, T.BertConfig(**TEXT)),
    "distilbert": (T.DistilBertForSequenceClassification,
                   T.DistilBertConfig(vocab_size=VOCABULARY, dim=16, n_layers=2, n_heads=2, hidden_dim=24)),
    "roberta": (T.RobertaForSequenceClassification, T.RobertaConfig(**TEXT, type_vocab_size=1, num_labels=3)),
    "gpt2": (T.GPT2LMHeadModel, T.GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=16)),
    "llama": (T.LlamaForCausalLM, T.LlamaConfig(**TEXT, num_key_value_heads=1)),
    "llama, tied": (T.LlamaForCausalLM, T.LlamaConfig(**TEXT, tie_word_embeddings=True)),
    "llama, divided frequencies": (T.LlamaForCausalLM, T.LlamaConfig(**TEXT, rope_parameters=dict(
        rope_type="longrope", rope_theta=100.0, short_factor=[1, 1.5, 4, 8], long_factor=[1, 1.5, 4, 8], factor=1.0,
        attention_factor=1.0, original_max_position_embeddings=16))),
    "vit": (T.ViTForImageClassification, T.ViTConfig(**IMAGE, num_labels=3)),
    "deit": (T.DeiTForImageClassification, T.DeiTConfig(**IMAGE, num_labels=3)),
    "deit, teacher": (T.DeiTForImageClassificationWithTeacher, T.DeiTConfig(**IMAGE, num_labels=3)),
}
SMALL = dict(img_size=SIDE, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=3)
# name: architecture, arguments.
TIMM = {
    "timm vit": ("vit_tiny_patch16_224", SMALL),
    "timm vit, mean": ("vit_small_patch16_224", dict(SMALL, global_pool="avg", mlp_ratio=3)),
    "timm vit, no bias": ("vit_base_patch16_224", dict(SMALL, qkv_bias=False, init_values=0.1)),
    "timm deit, distilled": ("deit_tiny_distilled_patch16_224", SMALL),
    "timm deit, distilled, no head": ("deit_tiny_distilled_patch16_224", dict(SMALL, num_classes=0)),
    "timm deit3": ("deit3_small_patch16_224", SMALL),
    "timm registers": ("vit_medium_patch16_reg4_gap_256", SMALL),
    "timm no class token": ("vit_medium_patch16_gap_240", SMALL),
    "timm resnet": ("resnet18", dict(num_classes=3)),
    "timm efficientnet": ("efficientnet_lite0", dict(num_classes=3)),
    "timm efficientnet of TensorFlow": ("tf_efficientnet_lite0", dict(num_classes=3)),
}


def random_weights(model):
    """No parameter and no statistic is at a value where a mistake would not show."""
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) * 0.4 + (0.8 if tensor.dim() == 1 else -0.2))
    return model.eval()


def from_timm(path, **arguments):
    return timm.create_model(f"local-dir:{path}", pretrained=True, **arguments)


def inputs_of(model, text):
    if not text:
        return {"pixel_values": torch.randn(ROWS, 3, SIDE, SIDE)}
    ids = torch.randint(4, VOCABULARY, (ROWS, LENGTH))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    ids[1, 6:] = model.config.pad_token_id or 0
    return {"input_ids": ids, "attention_mask": mask}


def output_of(model, inputs):
    """Logits, or a body's last hidden states."""
    if "pixel_values" in inputs and not isinstance(model, T.PreTrainedModel):
        return model(inputs["pixel_values"])
    out = model(**inputs)
    return out.logits if "logits" in out else out.last_hidden_state


def compare(name, model, load, inputs, folder, program, classes=()):
    """The package's output, from what we saved, beside ours, where there is no padding; `classes`: with a new head."""
    save_file({key: value.contiguous() for key, value in inputs.items()}, f"{folder}/inputs.safetensors")
    subprocess.run([program, f"{folder}/in", f"{folder}/out", f"{folder}/inputs.safetensors",
                    f"{folder}/logits.safetensors", *classes], check=True)
    ours = load_file(f"{folder}/logits.safetensors")["logits"]
    with torch.no_grad():
        theirs, before = output_of(load(f"{folder}/out").eval(), inputs), output_of(model, inputs)
    if ours.dim() == 3:
        real = inputs["attention_mask"].bool()
        ours, theirs, before = ours[real], theirs[real], before[real]
    error = float((ours - theirs).abs().max() / theirs.abs().max())
    changed = 1.0 if classes else float((before - theirs).abs().max() / theirs.abs().max())
    ok = error < 1e-5 and changed > 1e-3
    print(f"{name}: relative difference {error:.1e} (before the change {changed:.1e})" + ("" if ok else "  WRONG"))
    return ok


def compare_resized(name, original, saved, folder, program):
    """Images of another size: `original` gives the logits with positions that the package interpolates, of weights
    changed as the program changes them; `saved` those of what we saved, whose positions we interpolated."""
    side = SIDE + 8
    images = torch.randn(ROWS, 3, side, side)
    save_file({"pixel_values": images}, f"{folder}/inputs.safetensors")
    subprocess.run([program, f"{folder}/in", f"{folder}/out", f"{folder}/inputs.safetensors",
                    f"{folder}/logits.safetensors", "0", str(side)], check=True)
    ours = load_file(f"{folder}/logits.safetensors")["logits"]
    with torch.no_grad():
        errors = [float((ours - theirs).abs().max() / theirs.abs().max())
                  for theirs in (original(images, side), saved(images))]
    print(f"{name}, images of {side}: relative differences {errors[0]:.1e}, saved {errors[1]:.1e}")
    return max(errors) < 1e-5


def changed(model):
    """As the program changes it."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.125)
    return model.eval()


def main(program):
    torch.manual_seed(0)
    ok = True
    for name, (kind, config) in TRANSFORMERS.items():
        model = random_weights(kind(config))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(f"{folder}/in")
            inputs = inputs_of(model, not name.startswith(("vit", "deit")))
            ok &= compare(name, model, kind.from_pretrained, inputs, folder, program)
            if "pixel_values" in inputs:
                ok &= compare_resized(
                    name, lambda x, side: changed(kind.from_pretrained(f"{folder}/in"))(
                        x, interpolate_pos_encoding=True).logits,
                    lambda x: kind.from_pretrained(f"{folder}/out").eval()(x).logits, folder, program)
    model = random_weights(T.BertModel(T.BertConfig(**TEXT)))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(f"{folder}/in")
        load = T.BertForSequenceClassification.from_pretrained
        ok &= compare("bert, new head", model, load, inputs_of(model, True), folder, program, ["5"])
    for name, (architecture, arguments) in TIMM.items():
        model = random_weights(timm.create_model(architecture, **arguments))
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(f"{folder}/in").mkdir()
            save_for_hf(model, f"{folder}/in", model_args=arguments)
            ok &= compare(name, model, from_timm, inputs_of(model, False), folder, program)
            ok &= compare(f"{name}, new head", model, from_timm, inputs_of(model, False), folder, program, ["5"])
            if not isinstance(model, (timm.models.ResNet, timm.models.EfficientNet)):
                ok &= compare_resized(name, lambda x, side: changed(from_timm(f"{folder}/in", img_size=side))(x),
                                      lambda x: from_timm(f"{folder}/out").eval()(x), folder, program)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
