#!/usr/bin/env python3
"""Runs the sample `images` on scattering's features: kept, mirrored, and standardised privately.

Usage: scattering_test.py PATH_OF_IMAGES [unittest options]
"""

import csv
import json
import os
import random
import re
import stat
import struct
import unittest

from images_test import FEW, ONE, SIDE, InFolder, striped
from programs import TrainingCase, png, read_tensors, take_programs


class Features(InFolder):
    def test_features_are_kept_for_the_next_run_on_the_same_pictures_only(self):
        cache, data = self.path("features"), self.pictures()
        common = ["--size", str(SIDE), "--noise-multiplier", "2", "--batch-size", "10", "--delta",
                  "1e-3", "--steps", "2", "--cache", cache]
        self.train("--data", data, *common, "--validation", "0.3")
        self.assertEqual(0o600, stat.S_IMODE(os.stat(cache).st_mode))
        tensors, metadata = read_tensors(cache)
        self.assertEqual(("F16", (64, 81 * 3, 2, 2)), tensors["train"][:2])
        self.assertIn("sotto.secret", metadata)
        written = os.stat(cache).st_mtime_ns
        self.train("--data", data, *common)
        self.assertEqual(written, os.stat(cache).st_mtime_ns)
        for changes in (["--data", self.pictures("other", seed=3)], ["--data", data, "--mirror"],
                        ["--data", data, "--groups", "9"]):
            self.refused("--cache: .*features of other data", "train", *common, *changes)
        self.refused("--cache: needs --model scattering", "train", *common, "--model", "cnn")
        self.refused("--cache: .*/0.png", "train", "--data", data, "--cache",
                     os.path.join(data, "down", "0.png"))

    def test_features_are_those_of_a_run_without_a_file(self):
        seen = []
        for cache in ([], ["--cache", self.path("c")], ["--cache", self.path("c")]):
            facts = self.facts("--train-size", "100", "--test-size", "50", "--size", str(SIDE),
                               "--no-privacy", "--batch-size", "20", "--epochs", "2", *cache)
            seen.append(facts["points"][-1])
        self.assertEqual(seen[0], seen[1])
        self.assertEqual(seen[0], seen[2])

    def test_a_mirror_image_is_the_same_to_the_model_if_asked(self):
        data = self.pictures()
        picture = striped(False, random.Random(8))
        for k, row in enumerate(picture):
            row[:SIDE] = [k] * SIDE  # no symmetry
        mirrored = [sum((row[k:k + 3] for k in range(len(row) - 3, -1, -3)), []) for row in picture]
        files = [self.write(png(picture), "a.png"), self.write(png(mirrored), "b.png")]
        equal = {}
        for name, flags in (("plain", []), ("same", ["--mirror"])):
            self.train("--data", data, "--size", str(SIDE), *FEW, "--steps", "1", *flags, "--save",
                       self.path(name))
            out = self.path(name + ".csv")
            done = self.call("predict", "--model", self.path(name), "--data", *files, "--out", out)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            with open(out, encoding="utf-8") as file:
                one, other = list(csv.reader(file))[1:]
            equal[name] = one[1:] == other[1:]
        self.assertEqual({"plain": False, "same": True}, equal)


class Standardizing(InFolder):
    def test_channels_are_standardised_by_a_release_that_epsilon_counts(self):
        data, cache = self.pictures(each=300), self.path("features")
        common = ["--data", data, "--test", data, "--size", "16", "--cache", cache]
        seen, settings = set(), ["--epsilon", "4", "--delta", "1e-4", "--batch-size", "100", "--epochs", "2"]
        for model in ("scattering", "scattering-cnn"):
            name, report = self.path(model), self.path("run.json")
            out = self.train(*common, *settings, "--model", model, "--mirror", "--standardize", "--save", name,
                             "--json", report)
            self.assertIn("means and deviations of 243 columns were released with noise", out)
            seen.add(os.stat(cache).st_mtime_ns)
            statement = json.loads(read_tensors(name)[1]["sotto.privacy"])
            self.assertEqual(12 + 1, statement["releases"])
            self.assertTrue(3.9 < statement["epsilon"] <= 4)
            self.means_are_near(name, cache, rows=600)
            done = self.call("evaluate", "--model", name, "--data", data, *ONE)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            with open(report, encoding="utf-8") as file:
                self.assertIn(f"accuracy  {json.load(file)['test_accuracy']:.4f}", re.sub(r" {3,}", "  ", done.stdout))
        self.assertEqual(1, len(seen))  # both models read the same features
        self.assertIn("resumed at step 12", self.train(*common, "--resume", self.path("scattering")))

    def means_are_near(self, model, cache, rows):
        """Those of the model, and of the features in the cache: noise of 20 sqrt(2 * 243) / rows, times 6."""
        model, features = read_tensors(model)[0], read_tensors(cache)[0]["train"]
        mean = struct.unpack("<243f", model["standardize.mean"][2])
        self.assertEqual((rows, 243, 4, 2), features[1])
        values = struct.unpack(f"<{rows * 243 * 8}e", features[2])
        noise = 6 * 20 * 486 ** 0.5 / rows
        sums = [0.0] * 243
        for k, x in enumerate(values):
            sums[k // 8 % 243] += min(6, max(-6, x))
        errors = [each - total / (8 * rows) for each, total in zip(mean, sums)]
        spread = (sum(error ** 2 for error in errors) / len(errors)) ** 0.5
        # Means end at 6 on either side, which leaves 0.84 of the spread.
        self.assertTrue(0.7 * noise < spread < noise, (spread, noise))

    def test_ordinary_training_by_the_preset_releases_nothing(self):
        common = ["--size", "16", "--train-size", "100", "--test-size", "50", "--preset", "scattering-cnn"]
        out = self.train(*common, "--no-privacy", "--batch-size", "20", "--steps", "2", "--save", self.path("m"))
        self.assertNotIn("were released", out)
        self.assertEqual({0.0}, set(struct.unpack("<243f", read_tensors(self.path("m"))[0]["standardize.mean"][2])))
        for other in ("--no-privacy", "--compare"):
            self.refused(other, "train", *common, "--standardize", other)


if __name__ == "__main__":
    (TrainingCase.program,) = take_programs(1)
    unittest.main()
