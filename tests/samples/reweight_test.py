#!/usr/bin/env python3
"""Runs the sample `reweight` as people do: training with weights of rows, resuming, and refusals.

Usage: reweight_test.py PATH_OF_REWEIGHT [unittest options]
"""

import json
import os
import random
import struct
import unittest

from programs import TrainingCase, charged, read_tensors, run_program, take_programs

SMALL = ["--train-size", "300", "--test-size", "50", "--batch-size", "60"]
FEW = [*SMALL, "--clean", "40"]
NOISY = [*FEW, "--noise-multiplier", "0.8", "--delta", "1e-3"]
PLAIN = [*FEW, "--no-privacy"]


class Reweight(TrainingCase):
    def train(self, *arguments):
        """The program has no commands."""
        done = run_program([self.program, *arguments, "--threads", "1"])
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout

    def mnist(self, folder="mnist", count=300, seed=3):
        """Pictures in MNIST's format: those of a class differ in an eighth of their bits."""
        draw, classes = random.Random(seed), random.Random(0)
        patterns = [classes.getrandbits(8 * 784) for _ in range(10)]
        os.makedirs(self.path(folder), exist_ok=True)
        for part in ("train", "t10k"):
            noise = [draw.getrandbits(8 * 784) & draw.getrandbits(8 * 784) & draw.getrandbits(8 * 784) for _ in range(count)]
            with open(self.path(folder, part + "-images-idx3-ubyte"), "wb") as file:
                file.write(struct.pack(">IIII", 0x803, count, 28, 28))
                file.writelines((patterns[k % 10] ^ bits).to_bytes(784, "big") for k, bits in enumerate(noise))
            with open(self.path(folder, part + "-labels-idx1-ubyte"), "wb") as file:
                file.write(struct.pack(">II", 0x801, count) + bytes(k % 10 for k in range(count)))
        return self.path(folder)

    def cifar(self):
        """One picture of each class in CIFAR-10's format."""
        os.makedirs(self.path("cifar"), exist_ok=True)
        for name in ("data_batch_1", "test_batch"):
            with open(self.path("cifar", name + ".bin"), "wb") as file:
                file.write(b"".join(bytes([label]) + bytes(3072) for label in range(10)))
        return self.path("cifar")

    def check_weights(self, facts):
        """Rows with right labels weigh more, and the report says that this is not private."""
        right, wrong = (float(facts["results"][f"mean weight of training rows with {kind} labels"])
                        for kind in ("right", "wrong"))
        self.assertGreater(right, wrong + 0.2)
        self.assertRegex("\n".join(facts["not_private"]), "Mean weights of training rows")

    def test_a_gate_beats_equal_weights_where_labels_are_wrong(self):
        common = ["--train-size", "4000", "--test-size", "500", "--wrong-labels", "0.45", "--no-privacy",
                  "--batch-size", "100", "--steps", "400"]
        plain = self.facts(*common, "--method", "none")
        gate = self.facts(*common, "--method", "gate")
        self.assertGreater(gate["test_accuracy"], plain["test_accuracy"] + 0.1)
        self.check_weights(gate)
        self.assertNotIn("mean weight", json.dumps(plain))

    def test_a_network_learns_from_losses_to_weigh_rows_with_wrong_labels_less(self):
        self.check_weights(self.facts(
            "--data", self.mnist(count=3000), "--wrong-labels", "0.3", "--clean", "200", "--batch-size", "200", "--steps",
            "400", "--method", "network", "--lr", "1", "--weigher-lr", "0.1", "--noise-multiplier", "0.4", "--delta", "1e-4",
            "--accountant", "rdp"))

    def test_every_method_spends_the_same_and_charges_a_line_a_step(self):
        spent, releases = set(), set()
        for method in ("none", "gate", "network"):
            model = self.path(method)
            facts = self.facts(*NOISY, "--steps", "5", "--method", method, "--save", model)
            spent.add(facts["privacy"]["epsilon"])
            releases.add((facts["privacy"]["releases"], charged(model + ".ledger")))
        self.assertEqual(1, len(spent))
        self.assertEqual({(5, 5)}, releases)
        self.assertIn("2 groups", facts["privacy"]["clipping"])

    def test_a_run_that_is_resumed_ends_with_the_same_bits(self):
        for method in ("gate", "network"):
            whole, parts = self.path(method), self.path(method + "-parts")
            common = [*PLAIN, "--method", method, "--momentum", "0.9", "--wrong-labels", "0.3", "--imbalance", "4"]
            self.train(*common, "--steps", "9", "--save", whole)
            self.train(*common, "--steps", "4", "--save", parts)
            self.train("--resume", parts, "--steps", "9")
            self.assertEqual(read_tensors(whole)[0], read_tensors(parts)[0])
        self.assertIn("weigher.0.weight", read_tensors(whole)[0])

    def test_a_private_run_is_resumed_and_stays_charged(self):
        model = self.path("model")
        self.train(*NOISY, "--steps", "3", "--method", "network", "--save", model)
        facts = self.facts("--resume", model, "--steps", "7")
        self.assertEqual(7, facts["privacy"]["releases"])
        self.assertEqual(7, charged(model + ".ledger"))
        self.told(run_program([self.program, "--resume", model, "--steps", "8", "--method", "gate"]), 2,
                  "method is")

    def test_physical_batches_two_passes_and_a_limit_of_memory_train_as_well(self):
        for options in (["--physical-batch", "7"], ["--clipping", "ghost"], ["--memory-limit", "200MB"],
                        ["--adaptive-clip-quantile", "0.5"], ["--clip-rule", "normalize"],
                        ["--optimizer", "adam", "--lr", "0.01", "--ema", "0.9"],
                        ["--weigher-sees", "loss-and-label"], ["--precision", "bf16"]):
            for method in ("gate", "network"):
                if method == "gate" and options[0].startswith("--weigher"):
                    continue
                out = self.train(*NOISY, "--steps", "2", "--method", method, *options, "--quiet")
                self.assertRegex(out.splitlines()[-1], "^test accuracy")

    def test_clean_rows_are_taken_out_of_the_training_data(self):
        settings = {s["name"]: s["value"] for s in self.facts(
            "--data", self.mnist(), "--clean", "40", "--batch-size", "50", "--delta", "1e-3", "--noise-multiplier",
            "2", "--steps", "1")["settings"]}
        self.assertEqual(("260", "300"), (settings["train size"], settings["test size"]))
        alone = {s["name"]: s["value"] for s in self.facts(
            "--data", self.path("mnist"), "--clean", "40", "--batch-size", "20", "--no-privacy", "--method",
            "clean-only", "--steps", "1")["settings"]}
        self.assertEqual("40", alone["train size"])

    def test_a_row_that_is_clean_and_private_is_refused(self):
        data = ["--data", self.mnist(), "--clean", "40", "--batch-size", "50", "--delta", "1e-3",
                "--noise-multiplier", "2", "--steps", "1"]
        self.refused("--clean-data: 40 of the 40 clean rows are private rows", *data, "--clean-data",
                     self.path("mnist"))
        self.train(*data, "--clean-data", self.mnist("other", seed=4))

    def test_what_would_mislead_is_refused(self):
        mnist = self.mnist()
        for why, *arguments in (
                ("--method: .*bright", *NOISY, "--method", "bright"),
                ("--method: clean-only .*no privacy", *NOISY, "--method", "clean-only"),
                ("--clip-groups: layers: .*two groups", *NOISY, "--method", "network", "--clip-groups", "layers"),
                ("--weigher-lr: has no effect", *NOISY, "--method", "gate", "--weigher-lr", "1"),
                ("--wrong: has no effect", *NOISY, "--wrong", "random"),
                ("--clean-batch: has no effect", *NOISY, "--method", "none", "--clean-batch", "5"),
                ("--wrong-labels: has no effect", *PLAIN, "--method", "clean-only", "--wrong-labels", "0.1"),
                ("--wrong-labels: 1 is not", *NOISY, "--wrong-labels", "1"),
                ("--imbalance: 0.5 is not", *NOISY, "--imbalance", "0.5"),
                ("--imbalance: 1000 of", *NOISY, "--imbalance", "1000"),
                ("--clean: 0 is not", *SMALL, "--clean", "0"),
                ("--clean: .*GiB are needed", *SMALL, "--clean", "9000000000000000000"),
                ("--clean-batch: 0 is not", *NOISY, "--clean-batch", "0"),
                ("--clean: 2000 rows, but class", "--data", mnist, "--clean", "2000"),
                ("--clean-data: needs --data", *NOISY, "--clean-data", mnist),
                ("--clean-data: .*other pictures", "--data", mnist, "--clean-data", self.cifar()),
                ("--weigher-clip-bound: 0 is not", *NOISY, "--method", "network", "--weigher-clip-bound", "0"),
                ("--weigher-clip-bound: 1e-20 of 1e-20 is below", *NOISY, "--method", "network", "--clip-bound", "1e-20",
                 "--weigher-clip-bound", "1e-20"),
                ("--weigher-lr: 0 is not", *NOISY, "--method", "network", "--weigher-lr", "0"),
                ("--mirror: needs --model scattering", *NOISY, "--mirror"),
                ("nothing: no such folder", "--data", self.path("nothing"))):
            with self.subTest(why):
                self.refused(why, *arguments)

    def test_a_page_and_an_ordinary_training_beside_show_what_weights_do(self):
        page = self.path("page.html")
        for method in ("gate", "network"):
            out = self.train(*NOISY, "--steps", "2", "--method", method, "--wrong-labels", "0.3", "--imbalance", "2",
                             "--report", page, "--compare")
            self.assertRegex(out, r"(?m)^without privacy: test accuracy [\d.]+ %, which is NOT PRIVATE$")
            with open(page, encoding="utf-8") as file:
                text = file.read()
            for name in ("with right labels", "with wrong labels", "of class 9"):
                self.assertIn("mean weight of training rows " + name, text)
            self.assertEqual(method == "network", "weight of a row of loss 4" in text)


if __name__ == "__main__":
    (TrainingCase.program,) = take_programs(1)
    unittest.main()
