#!/usr/bin/env python3
"""Runs the sample `images` as people do: training, evaluation, prediction, and refusals.

Usage: images_test.py PATH_OF_IMAGES [unittest options]
"""

import csv
import json
import os
import random
import re
import struct
import tarfile
import unittest

from programs import TrainingCase, WithCommands, charged, png, read_tensors, take_programs

ONE = ["--threads", "1"]
FEW = ["--noise-multiplier", "2", "--batch-size", "10", "--delta", "1e-3"]
SIDE = 8


def striped(across, draw, side=2 * SIDE):
    """A picture of stripes, with noise and a random start."""
    start = draw.randrange(8)
    rows = []
    for y in range(side):
        row = []
        for x in range(side):
            bright = ((y if across else x) + start) // 4 % 2
            row += [100 * bright + draw.randrange(100) for _ in range(3)]
        rows.append(row)
    return rows


class InFolder(TrainingCase):
    def write(self, data, *names):
        os.makedirs(os.path.dirname(self.path(*names)), exist_ok=True)
        with open(self.path(*names), "wb") as file:
            file.write(data)
        return self.path(*names)

    def pictures(self, folder="photos", each=40, seed=1):
        draw = random.Random(seed)
        for name in ("across", "down"):
            for k in range(each):
                self.write(png(striped(name == "across", draw)), folder, name, f"{k}.png")
        return self.path(folder)

    def cifar(self, folder="cifar", records=8):
        """Pictures of


class 0 have stripes across, those of class 9 down."""
        draw = random.Random(5)
        for name in [f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]:
            lines = b""
            for k in range(records):
                rows = striped(k % 2 == 0, draw, side=32)
                planes = [row[c::3] for c in range(3) for row in rows]
                lines += bytes([9 * (k % 2)] + sum(planes, []))
            self.write(lines, folder, name + ".bin")
        return self.path(folder)

    def mnist(self, folder="mnist", count=20):
        for part in ("train", "t10k"):
            self.write(struct.pack(">IIII", 0x803, count, 28, 28) + bytes(range(112)) * 7 * count,
                       folder, part + "-images-idx3-ubyte")
            self.write(struct.pack(">II", 0x801, count) + bytes(k % 10 for k in range(count)),
                       folder, part + "-labels-idx1-ubyte")
        return self.path(folder)

    def settings(self, *arguments):
        return {s["name"]: s["value"] for s in self.facts(*arguments)["settings"]}


class Training(InFolder):
    def test_shapes_drawn_by_the_program_can_be_learned(self):
        page = self.path("run.html")
        facts = self.facts("--train-size", "1500", "--test-size", "200", "--batch-size", "200",
                           "--epochs", "8", "--epsilon", "8", "--report", page)
        self.assertGreater(facts["test_accuracy"], 0.6)
        self.assertEqual(["circle", "cross", "ring", "square", "triangle"],
                         facts["confusion"]["classes"])
        self.assertEqual(200, sum(facts["confusion"]["counts"]))
        self.assertAlmostEqual(facts["test_accuracy"], float(facts["results"]["accuracy"]), 4)
        with open(page, encoding="utf-8") as file:
            self.assertIn("Results on the test data", file.read())

    def test_the_page_shows_wrong_pictures_of_public_test_data_only(self):
        page, fast = self.path("run.html"), ["--size", str(SIDE), "--epochs", "1", "--no-privacy",
                                             "--batch-size", "10", "--report", self.path("run.html")]
        shown = {}
        for name, data in (("drawn", ["--train-size", "50", "--test-size", "60"]),
                           ("part of the data", ["--data", self.pictures()]),
                           ("validation", ["--train-size", "50", "--validation", "0.4"]),
                           ("given", ["--data", self.pictures(each=3), "--test", self.path("photos")])):
            facts = self.facts(*data, *fast)
            with open(page, encoding="utf-8") as file:
                shown[name] = file.read().count("<img ")
            self.assertEqual(shown[name], len(facts["wrong_pictures"]))
            wrong = round((1 - facts["test_accuracy"]) * sum(facts["confusion"]["counts"]))
            self.assertEqual(0 if name in ("part of the data", "validation") else min(24, wrong), shown[name])
        self.assertGreater(shown["drawn"], 0)

    def test_a_part_of_the_training_data_takes_the_place_of_the_test_data(self):
        common = ["--size", str(SIDE), "--train-size", "100", "--no-privacy", "--epochs", "2",
                  "--batch-size", "10"]
        out = self.train(*common, "--validation", "0.3")
        self.assertIn("70 training and 30 validation samples", out)
        self.assertRegex(out.splitlines()[-1], "^validation accuracy")
        tests = [self.facts(*common, "--validation", "0.3", *more)
                 for more in ([], ["--test-size", "7"], ["--seed", "5"])]
        for facts in tests:
            self.assertEqual((30, True), (sum(facts["confusion"]["counts"]),
                                          facts["measured_on_private_data"]))
        for wrong, why in (("1", "below 1"), ("-0.1", "at least 0"), ("nan", ""), ("0.001", "100 training and 0 validation")):
            self.refused("--validation: .*" + why, "train", *common, "--validation", wrong)

    def test_a_run_that_holds_data_out_is_resumed_on_the_same_data(self):
        sizes = ["--size", str(SIDE), "--train-size", "100", "--test-size", "20"]
        common = [*sizes, "--validation", "0.3", "--batch-size", "10", "--no-privacy"]
        whole, parts, private = self.path("whole"), self.path("parts"), self.path("private")
        for path, steps in ((whole, "9"), (parts, "4")):
            self.train(*common, "--steps", steps, "--save", path)
        self.assertIn("70 training and 30 validation", self.train("--resume", parts, "--steps", "6"))
        self.train("--resume", parts, *sizes, "--steps", "9")  # says the sizes again
        self.assertEqual(read_tensors(whole)[0], read_tensors(parts)[0])
        self.refused("--resume: train size is 40 here and 70", "train", "--resume", parts, "--train-size", "40")
        self.train(*common[:-1], "--noise-multiplier", "2", "--steps", "2", "--save", private)
        releases = self.facts("--resume", private, "--steps", "5")["privacy"]["releases"]
        self.assertEqual((5, 5), (releases, charged(private + ".ledger")))

    def test_drawn_shapes_are_written_as_files_to_train_on(self):
        out = self.path("shapes")
        done = self.call("shapes", "--out", out, "--count", "60", "--size", "16")
        self.assertEqual((0, f"60 pictures in {out}\n", ""), (done.returncode, done.stdout, done.stderr))
        self.assertEqual(["circle", "cross", "ring", "square", "triangle"], sorted(os.listdir(out)))
        self.assertEqual(60, sum(len(files) for _, _, files in os.walk(out)))
        settings = self.settings("--data", out, "--size", "16", *FEW, "--steps", "1")
        self.assertEqual(("48", "12"), (settings["train size"], settings["test size"]))
        self.call("shapes", "--out", self.path("later"), "--count", "5", "--first", "55", "--size", "16")
        for folder, _, files in os.walk(self.path("later")):
            for name in files:
                with open(os.path.join(folder, name), "rb") as file, \
                        open(os.path.join(folder.replace("later", "shapes"), name), "rb") as other:
                    self.assertEqual(file.read(), other.read())
        self.refused("--out: .*exists already", "shapes", "--out", out)
        self.refused("--count: .*2\\^20", "shapes", "--out", self.path("x"), "--count", "0")
        self.refused("--size: .*from 8", "shapes", "--out", self.path("x"), "--size", "7")

    def test_pictures_in_folders_are_learned_and_a_part_is_the_test(self):
        settings = self.settings("--data", self.pictures(), "--size", str(SIDE), *FEW, "--steps", "2")
        self.assertEqual(("64", "16"), (settings["train size"], settings["test size"]))
        facts = self.facts("--data", self.path("photos"), "--test", self.pictures("more", 10, seed=2),
                           "--size", str(SIDE), "--no-privacy", "--epochs", "30", "--batch-size", "10")
        self.assertEqual(["across", "down"], facts["confusion"]["classes"])
        self.assertEqual(20, sum(facts["confusion"]["counts"]))
        self.assertGreater(facts["test_accuracy"], 0.9)

    def test_files_of_cifar_and_mnist_are_recognized_with_their_own_test_pictures(self):
        settings = self.settings("--data", self.cifar(), *FEW, "--steps", "2")
        self.assertEqual(("40", "8", "32"),
                         (settings["train size"], settings["test size"], settings["size"]))
        facts = self.facts("--data", self.path("cifar"), "--no-privacy", "--epochs", "20",
                           "--batch-size", "10")
        self.assertEqual(("airplane", "truck"), (facts["confusion"]["classes"][0],
                                                 facts["confusion"]["classes"][9]))
        self.assertEqual(1, facts["test_accuracy"])
        settings = self.settings("--data", self.mnist(), *FEW, "--steps", "2")
        self.assertEqual(("20", "28"), (settings["train size"], settings["size"]))

    def test_cifar_is_trained_on_from_its_archive_as_downloaded(self):
        folder, archive = self.cifar(), self.path("cifar-10-binary.tar.gz")
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(folder, "cifar-10-batches-bin")
        losses = [self.facts("--data", data, "--no-privacy", "--epochs", "2", "--batch-size", "10")["points"]
                  for data in (folder, archive)]
        self.assertEqual(*losses)
        with open(archive, "rb") as file:
            whole = file.read()
        for damaged, why in ((whole[:-20], "ends early"), (whole[:-8] + bytes(8), "damaged"),
                             (b"", "without CIFAR's files"), (b"x" * 600, "no header of an archive")):
            self.write(damaged, "broken.tar.gz")
            self.refused(f"broken.tar.gz: .*{why}", "train", *FEW, "--data", self.path("broken.tar.gz"))

    def test_a_batch_is_compared_with_the_pictures_that_were_read(self):
        for batch in ("7000", "1e300"):
            self.refused("--batch-size: .*training samples", "train", "--data", self.cifar(),
                         "--noise-multiplier", "2", "--batch-size", batch)

    def test_every_network_makes_private_steps(self):
        for network in ("cnn", "resnet18", "resnet20", "resnet50", "wrn-16-4", "vit-tiny"):
            for grey in ([], ["--grey"]):
                out = self.train("--model", network, "--size", str(SIDE), "--train-size", "20",
                                 "--test-size", "5", "--noise-multiplier", "2", "--batch-size", "2",
                                 "--steps", "1", *grey)
                self.assertIn("test accuracy", out.splitlines()[-1], network)

    def test_the_preset_of_the_wide_network_sets_views_average_and_rate_and_prints_them(self):
        given = ["--preset", "wrn-16-4", "--size", str(SIDE), "--train-size", "20", "--test-size", "5", "--batch-size",
                 "1", "--steps", "1", "--delta", "1e-3"]
        out, settings = self.train(*given), self.settings(*given)
        for each in ("batch 4096.0", "learning rate 4.0", "noise multiplier 3.0", "steps 2468", "views 16"):
            self.assertRegex(out, f"\n  .*{each}")
        expected = {"model": "wrn-16-4", "views": "16", "shift": "4", "flip": "true", "noise multiplier": "3.0",
                    "clip bound": "1.0", "average": "0.9999", "average warmup": "true", "momentum": "0.0",
                    "learning rate": "4.0"}
        self.assertEqual(expected, {name: settings[name] for name in expected})

    def test_views_are_trained_on_and_resumed(self):
        common = ["--size", str(SIDE), "--model", "cnn", "--train-size", "20", "--test-size", "5",
                  "--batch-size", "4"]
        views = ["--views", "3", "--shift", "2", "--flip"]
        weights = {}
        others = [("cutout", [*views, "--cutout", "4"]), ("jitter", [*views, "--jitter", "0.3"]),
                  ("mixup", [*views, "--mixup", "0.5"])]
        for name, options in (("plain", []), ("views", views), ("again", views), *others):
            self.train(*common, *options, "--steps", "1", "--quiet", "--no-privacy", "--save",
                       self.path(name))
            with open(self.path(name), "rb") as file:
                weights[name] = file.read()
        self.assertEqual(weights.pop("again"), weights["views"])
        self.assertEqual(len(weights), len(set(weights.values())))
        self.train(*common, *views, "--noise-multiplier", "2", "--steps", "1", "--save", self.path("m"))
        self.refused("views is 2 here and 3 in the checkpoint", "train", "--resume", self.path("m"),
                     "--steps", "2", "--views", "2")
        out = self.train("--resume", self.path("m"), "--steps", "2")
        self.assertIn("resumed at step 1", out)

    def test_a_stopped_training_goes_on_to_the_same_model(self):
        common = ["--size", str(SIDE), *FEW, "--quiet"]
        data = self.pictures()
        self.train("--data", data, *common, "--steps", "5", "--save", self.path("whole"))
        self.train("--data", data, *common, "--steps", "3", "--save", self.path("m"))
        self.refused("the classes are across/down/more here and across/down in the checkpoint",
                     "train", "--data", self.with_another_class(), "--resume", self.path("m"),
                     "--steps", "5")
        out = self.train("--data", data, "--resume", self.path("m"), "--steps", "5")
        self.assertIn("resumed at step 3", out)
        _, metadata = read_tensors(self.path("m"))
        self.assertEqual(5, json.loads(metadata["sotto.privacy"])["releases"])

    def with_another_class(self):
        folder = self.pictures("other")
        self.write(png(striped(True, random.Random(2))), "other", "more", "1.png")
        return folder


class Using(InFolder):
    def setUp(self):
        super().setUp()
        self.data, self.model = self.pictures(), self.path("m.safetensors")
        self.train("--data", self.data, "--size", str(SIDE), "--no-privacy", "--epochs", "10",
                   "--batch-size", "10", "--quiet", "--save", self.model)

    def test_evaluate_and_predict_agree(self):
        result, out = self.path("e.json"), self.path("p.csv")
        done = self.call("evaluate", "--model", self.model, "--data", self.data, "--json", result)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertIn("80 pictures", done.stdout)
        done = self.call("predict", "--model", self.model, "--data", self.data, "--out", out, *ONE)
        self.assertEqual((0, "", f"80 predictions in {out}\n"),
                         (done.returncode, done.stderr, done.stdout))
        with open(out, encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        right = sum(f"/{line['class']}/" in line["file"] for line in lines)
        with open(result, encoding="utf-8") as file:
            facts = json.load(file)
        self.assertAlmostEqual(facts["accuracy"], right / 80, 4)
        self.assertEqual(right, facts["confusion"][0] + facts["confusion"][3])
        for line in lines:
            self.assertAlmostEqual(1, float(line["p(across)"]) + float(line["p(down)"]), 5)

    def test_a_model_knows_its_classes_and_form(self):
        _, metadata = read_tensors(self.model)
        self.assertEqual({"model": "scattering", "size": SIDE, "channels": 3, "groups": 0,
                          "mirror": False, "standardize": False, "classes": ["across", "down"]},
                         json.loads(metadata["sotto.images.model"]))

    def test_a_class_without_pictures_and_files_of_any_size_do_no_harm(self):
        one = self.write(png(striped(True, random.Random(1), side=50)), "one", "down", "x.png")
        done = self.call("evaluate", "--model", self.model, "--data", self.path("one"))
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        done = self.call("predict", "--model", self.model, "--data", one, "--out", self.path("p.csv"))
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_refusals_name_the_file_and_the_value(self):
        broken = self.write(b"\x89PNG\r\n\x1a\n", "broken", "down", "x.png")
        self.write(png(striped(True, random.Random(1))), "cats", "cat", "x.png")
        self.refused(re.escape(broken), "evaluate", "--model", self.model, "--data", self.path("broken"))
        self.refused(re.escape(broken), "predict", "--model", self.model, "--data", broken, "--out",
                     self.path("p.csv"))
        self.refused("cat is not among the 2 classes", "evaluate", "--model", self.model, "--data",
                     self.path("cats"))
        self.refused("32 x 32 pixels and 3 channels, not 8 x 8", "evaluate", "--model", self.model,
                     "--data", self.cifar())
        self.refused("not a model of this program", "evaluate", "--model", broken, "--data", self.data)
        self.refused("none.png", "predict", "--model", self.model, "--data", self.path("none.png"),
                     "--out", self.path("p.csv"))
        self.refused("--out: is required", "predict", "--model", self.model, "--data", self.data)


class Refusals(WithCommands, InFolder):
    """Nothing is spent or written for settings and pictures that cannot be trained on."""

    commands = ("train", "evaluate", "predict", "shapes")

    def refuse(self, message, *arguments):
        self.refused(message, "train", *FEW, *ONE, *arguments, "--save", self.path("m"))

    def test_options_out_of_range(self):
        for arguments in (["--size", "4"], ["--size", "30"], ["--groups", "2"], ["--groups", "-3"], ["--test-fraction", "0"],
                          ["--test", self.folder]):
            self.refuse(re.escape(arguments[0]), *arguments)
        self.refuse("--size: 10 is not a multiple of 4", "--size", "10", "--model", "vit-tiny")
        self.refuse("--size: 12 is below 16", "--size", "12", "--model", "scattering-cnn")
        for option in ("--mirror", "--standardize"):
            self.refuse(f"{option}: needs --model scattering", option, "--model", "cnn")
        for views in ("-1", "257"):
            self.refuse("--views: .*from 0 to 256", "--model", "cnn", "--views", views, "--flip")
        self.refuse("--views: 4 views of a picture are equal", "--model", "cnn", "--views", "4")
        for option in (["--flip"], ["--cutout", "4"], ["--jitter", "0.2"], ["--mixup", "0.5"]):
            self.refuse("--shift, --flip, --cutout, --jitter, --mixup: need --views", "--model", "cnn", *option)
        self.refuse("--views: 2 views of a picture are equal", "--model", "cnn", "--views", "2", "--mixup", "0.5")
        for option, value, fact in (("--cutout", "33", "from 0 to the 32"), ("--jitter", "1.5", "from 0 to 1"),
                                    ("--mixup", "0.001", "0 or from 0.01"), ("--mixup", "nan", "not a finite number")):
            self.refuse(f"{option}: .*{fact}", "--model", "cnn", "--views", "2", "--flip", option, value)
        self.refuse("--shift: .*below the 32", "--model", "cnn", "--views", "4", "--shift", "32")
        self.refuse("--views: scattering", "--views", "4", "--flip")

    def test_options_that_do_not_fit_the_data(self):
        self.refuse("--size: the pictures of .*cifar have 32", "--data", self.cifar(), "--size", "16")
        self.refuse("--grey: the pictures of .*cifar", "--data", self.cifar(), "--grey")

    def test_folders_without_classes_or_with_one(self):
        os.makedirs(self.path("empty"))
        self.refuse("no such folder", "--data", self.path("none"))
        self.refuse("no classes", "--data", self.path("empty"))
        self.write(png(striped(True, random.Random(1))), "one", "down", "x.png")
        self.write(png(striped(True, random.Random(2))), "one", "down", "y.png")
        self.refuse("one class, down", "--data", self.path("one"), "--test", self.path("one"))

    def test_a_damaged_picture(self):
        data = self.pictures(each=5)
        self.write(b"no picture", "photos", "down", "3.png")
        self.refuse("down/3.png", "--data", data)


if __name__ == "__main__":
    (TrainingCase.program,) = take_programs(1)
    unittest.main()
