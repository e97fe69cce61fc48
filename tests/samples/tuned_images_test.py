#!/usr/bin/env python3
"""Tunes a small published model of pictures by the sample `images`, and makes vectors of pictures by `embed`.

Usage: tuned_images_test.py PATH_OF_IMAGES PATH_OF_EMBED [unittest options]
"""

import csv
import json
import os
import struct
import unittest

from programs import TrainingCase, read_tensors, run_program, take_programs
from small_pretrained import write_resnet, write_vit

FEW = ["--train-size", "120", "--test-size", "40", "--batch-size", "40", "--size", "32"]


def floats_of(path):
    """The numbers of each f32 tensor of a model file."""
    return {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (_, _, data) in read_tensors(path)[0].items()}


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


class Tuned(TrainingCase):
    def setUp(self):
        super().setUp()
        self.model = self.path("resnet.safetensors")
        write_resnet(self.model)
        self.start = ["--init", self.model, "--architecture", "torchvision.ResNet"]

    def command(self, *words):
        done = self.call(*words)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout

    def test_every_tuning_trains_privately(self):
        for tune, norms in (("head", "frozen"), ("norms", "frozen"), ("all", "folded"), ("all", "group")):
            out = self.train(*self.start, *FEW, "--tune", tune, "--batch-norms", norms, "--epsilon", "8", "--epochs", "1")
            self.assertRegex(out.splitlines()[-1], r"^test accuracy \S+ %   \(ε = ", (tune, norms))

    def test_features_are_computed_once_and_kept(self):
        cache = self.path("features")
        words = [*self.start, *FEW, "--tune", "head", "--cache", cache, "--noise-multiplier", "1", "--steps", "2"]
        self.train(*words, "--dry-run")
        self.assertFalse(os.path.exists(cache))  # nothing is saved
        self.train(*words)
        tensors = read_tensors(cache)[0]
        self.assertEqual(("F16", (120, 64)), tensors["train"][:2])
        self.train(*words)
        self.refused("the features of other data", "train", *words, "--seed", "1")
        # Another model at the same path, or other batch norms of the same one.
        write_resnet(self.model, seed=2)
        self.refused("the features of other data", "train", *words)
        write_resnet(self.model)
        self.refused("the features of other data", "train", *words, "--batch-norms", "folded")

    def test_a_frozen_trunk_is_computed_once_for_every_tuning(self):
        words = [*self.start, *FEW, "--no-privacy", "--steps", "4", "--seed", "3"]
        for number, (tune, shape) in enumerate((("last:1", (32, 2, 2)), ("bitfit,last:2", (16, 4, 4)),
                                                ("norms,last:2", (16, 4, 4)),
                                                ("lora:2,targets=conv1,last:1", (32, 2, 2)))):
            cache, models = self.path(f"cache{number}"), [self.path(f"{kind}{number}") for kind in "abc"]
            self.train(*words, "--tune", tune, "--save", models[0])
            for model in models[1:]:
                self.train(*words, "--tune", tune, "--cache", cache, "--save", model)
            self.assertEqual(("F16", (120, *shape)), read_tensors(cache)[0]["train"][:2], tune)
            plain, made, loaded = (floats_of(model) for model in models)
            self.assertEqual(made, loaded, tune)
            self.assertEqual(list(plain), list(made), tune)
            for name in plain:
                for a, b in zip(plain[name], made[name]):
                    self.assertAlmostEqual(a, b, delta=2e-3, msg=(tune, name))
        self.refused("is frozen", "train", *words, "--tune", "norms", "--cache", cache)
        self.refused("--views: features of each picture are computed once", "train", *words, "--tune", "last:1",
                     "--cache", cache, "--views", "2", "--flip")

    def test_a_saved_model_holds_what_was_trained_and_is_used(self):
        model, shapes = self.path("m.safetensors"), self.path("shapes")
        self.train(*self.start, *FEW, "--tune", "norms", "--epsilon", "8", "--epochs", "1", "--save", model)
        names = read_tensors(model)[0]
        self.assertIn("fc.weight", names)
        self.assertIn("layer4.0.bn2.bias", names)
        self.assertNotIn("conv1.weight", names)
        self.command("shapes", "--out", shapes, "--count", "20", "--size", "32")
        self.assertIn("20 pictures", self.command("evaluate", "--model", model, "--data", shapes))

    def test_a_classifier_of_its_own_takes_what_layers_take(self):
        model, cache, shapes = self.path("m.safetensors"), self.path("features"), self.path("shapes")
        words = [*self.start, *FEW, "--layers", r"layer[34]\.0\.conv2|fc", "--cache", cache, "--epsilon", "8", "--epochs", "1"]
        for more in ((), ("--save", model)):
            out = self.train(*words, *more)
            self.assertIn("means and deviations of 160 columns were released with noise", out)
        self.assertEqual(("F16", (120, 160)), read_tensors(cache)[0]["train"][:2])
        saved = floats_of(model)
        self.assertEqual({"standardize.mean", "standardize.deviation", "classifier.weight", "classifier.bias"}, set(saved))
        self.assertNotEqual({0}, set(saved["standardize.mean"]))
        self.command("shapes", "--out", shapes, "--count", "20", "--size", "32")
        self.assertIn("20 pictures", self.command("evaluate", "--model", model, "--data", shapes))
        self.refused("--layers: needs --tune head", "train", *words[:-6], "--tune", "norms")
        self.refused("--head-bound, --head-lr: with --layers", "train", *words, "--head-lr", "1")
        self.refused('"none" fits no layer', "train", *self.start, *FEW, "--layers", "none")

    def test_a_tuned_model_goes_back_to_where_it_came_from(self):
        model, folder = self.path("m.safetensors"), self.path("whole")
        words = ["--init", self.path("vit"), *FEW]  # 32 pixels, where the model has 16
        write_vit(words[1])
        self.train(*words, "--tune", "lora:2", "--epsilon", "8", "--epochs", "1", "--save", model)
        self.assertEqual(f"the model in {folder}\n", self.command("export", "--model", model, "--out", folder))
        tensors = read_tensors(f"{folder}/model.safetensors")[0]
        self.assertEqual(("F32", (1, 17, 16)), tensors["vit.embeddings.position_embeddings"][:2])
        self.assertEqual(("F32", (5, 16)), tensors["classifier.weight"][:2])
        self.assertFalse([name for name in tensors if "lora" in name])
        config, pictures, statement = (read_json(f"{folder}/{name}.json") for name in (
            "config", "preprocessor_config", "privacy_statement"))
        self.assertEqual((32, 5), (config["image_size"], len(config["id2label"])))
        self.assertEqual(({"height": 32, "width": 32}, [0.25] * 3), (pictures["size"], pictures["image_mean"]))
        self.assertGreaterEqual(8, statement["epsilon"])
        # It can be tuned again, with the pictures' own size.
        self.train("--init", folder, *FEW[:-2], "--tune", "head", "--epsilon", "8", "--epochs", "1")
        self.command("export", "--model", model, "--out", self.path("adapter"), "--adapter")
        names = read_tensors(self.path("adapter/adapter_model.safetensors"))[0]
        self.assertTrue([name for name in names if name.endswith("lora_A.weight")], names)

    def test_a_model_that_others_cannot_compute_is_not_exported(self):
        layers, own = self.path("layers.safetensors"), self.path("own.safetensors")
        self.train(*self.start, *FEW, "--layers", "fc", "--epsilon", "8", "--steps", "2", "--save", layers)
        self.train(*FEW, "--epsilon", "8", "--steps", "2", "--save", own)
        for model, part in ((layers, "a classifier on layers"), (own, "was not tuned from a published model")):
            self.refused(part, "export", "--model", model, "--out", self.path("folder"))
            self.assertFalse(os.path.exists(self.path("folder")))

    def test_options_of_published_models_need_one(self):
        self.refused("--tune: has no effect on this model", "train", "--tune", "all")
        self.refused("--model: has no effect on this model", "train", *self.start, "--model", "cnn")

    def test_vectors_of_pictures_have_length_one(self):
        shapes, vectors = self.path("shapes"), self.path("vectors.csv")
        self.command("shapes", "--out", shapes, "--count", "20", "--size", "32")
        made = run_program([EMBED, *self.start, "--data", shapes, "--size", "32", "--out", vectors,
                            "--schema", self.path("vectors.json")])
        self.assertEqual((0, ""), (made.returncode, made.stderr))
        with open(vectors, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(20, len(rows))
        self.assertAlmostEqual(1, sum(float(rows[0][f"v{k}"]) ** 2 for k in range(1, 65)), places=4)
        self.assertIn(rows[0]["label"], os.listdir(shapes))
        write_vit(self.path("vit"))  # of 16 pixels
        made = run_program([EMBED, "--init", self.path("vit"), "--data", shapes, "--size", "32",
                            "--out", self.path("of_vit.csv")])
        self.assertEqual((0, ""), (made.returncode, made.stderr))


if __name__ == "__main__":
    IMAGES, EMBED = take_programs(2)
    TrainingCase.program = IMAGES
    unittest.main()
