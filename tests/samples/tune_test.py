#!/usr/bin/env python3
"""Runs the sample `tune` as people do: settings learned in one training, sweeps, resuming, refusals.

Usage: tune_test.py PATH_OF_TUNE [unittest options]
"""

import json
import os
import re
import unittest

from programs import TrainingCase, charged, take_programs

SMALL = ["--train-size", "300", "--test-size", "60", "--batch-size", "30", "--public-rows", "50"]
FEW = [*SMALL, "--steps", "6"]
SWEEP = [*FEW, "--sweep", "3", "--sweep-range", "4"]


class Tune(TrainingCase):
    def train(self, *arguments):
        done = self.call(*arguments, "--threads", "1")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout

    def refuse(self, message, *arguments):
        self.refused(re.escape(message), *arguments)

    def final(self, facts):
        """The settings at the end, by name."""
        return {name[len("final "):]: float(value) for name, value in facts["results"].items()
                if name.startswith("final ")}

    def test_learned_settings_cost_no_epsilon(self):
        plain = self.facts(*FEW, "--epsilon", "3", "--learn", "none")
        for learned in ("lr,wd", "lr,momentum,wd", "bound", "lr,wd,bound"):
            tuned = self.facts(*FEW, "--epsilon", "3", "--learn", learned)
            # Epsilon while one trains is composed in parts, whose sums differ in the last bits.
            self.assertAlmostEqual(plain["privacy"]["epsilon"], tuned["privacy"]["epsilon"], 12, learned)
            for same in ("epsilon_planned", "mechanism", "releases"):
                self.assertEqual(plain["privacy"][same], tuned["privacy"][same], learned)

    def test_what_is_learned_moves_and_nothing_else(self):
        start = {"learning rate": 0.1, "momentum": 0.9, "weight decay": 0.0001, "clip bound": 1}
        for learned, names in (("lr", {"learning rate"}), ("momentum", {"momentum"}), ("wd", {"weight decay"}),
                               ("bound", {"clip bound"}), ("lr,wd,bound", {"learning rate", "weight decay",
                                                                          "clip bound"})):
            final = self.final(self.facts(*FEW, "--noise-multiplier", "1", "--learn", learned))
            moved = {name for name, value in final.items() if value != start[name]}
            self.assertEqual(names, moved, learned)
        self.assertEqual({}, self.final(self.facts(*FEW, "--noise-multiplier", "1", "--learn", "none")))

    def test_without_privacy_there_is_no_bound_to_learn(self):
        facts = self.facts(*FEW, "--no-privacy", "--learn", "lr,wd,bound")
        self.assertEqual({"learning rate", "momentum", "weight decay"}, set(self.final(facts)))
        self.assertIsNone(facts["privacy"])

    def test_a_resumed_run_learns_on(self):
        model = self.path("model.safetensors")
        common = [*SMALL, "--noise-multiplier", "1", "--learn", "lr,wd,bound"]
        before = self.final(self.facts(*common, "--steps", "4", "--save", model))
        same = self.final(self.facts("--resume", model, "--steps", "4"))
        self.assertEqual(before, same)
        after = self.final(self.facts("--resume", model, "--steps", "8"))
        for name in ("learning rate", "weight decay", "clip bound"):
            self.assertNotEqual(before[name], after[name], name)
        self.refuse("learn is ", "--resume", model, "--learn", "lr")

    def test_without_privacy_a_resumed_run_is_the_same_as_a_whole_one(self):
        model = self.path("model.safetensors")
        common = [*SMALL, "--no-privacy", "--learn", "lr,momentum,wd"]
        whole = self.final(self.facts(*common, "--steps", "8"))
        self.train(*common, "--steps", "4", "--save", model)
        self.assertEqual(whole, self.final(self.facts("--resume", model, "--steps", "8")))

    def test_a_sweep_charges_the_sum_of_its_trainings(self):
        facts = self.facts(*SWEEP, "--epsilon", "3")
        self.assertEqual("sum", facts["charge"])
        self.assertEqual(3, len(facts["settings"]))
        self.assertLessEqual(facts["epsilon"], 3)
        self.assertGreater(facts["epsilon"], 2.95)
        one = self.facts(*FEW, "--noise-multiplier", str(facts["noise_multiplier"]), "--learn", "none")
        self.assertLess(one["privacy"]["epsilon"], facts["epsilon"])
        self.assertIn(facts["best"], facts["settings"])
        best = max(setting["public_accuracy"] for setting in facts["settings"])
        self.assertEqual(best, facts["best"]["public_accuracy"])
        accuracies = sorted(setting["accuracy"] for setting in facts["settings"])
        self.assertEqual(accuracies[1], facts["median"])
        for setting in facts["settings"]:
            for name, start in (("learning_rate", 0.1), ("weight_decay", 1e-4), ("clip_bound", 1)):
                self.assertTrue(start / 4 <= setting[name] <= start * 4, (name, setting))

    def test_a_sweep_of_broken_off_epochs_meets_its_target(self):
        for sampling in (["partition"], ["balls_and_bins", "--accountant", "rdp"]):
            facts = self.facts(*SMALL, "--steps", "2", "--sweep", "3", "--epsilon", "3", "--sampling", *sampling)
            self.assertLessEqual(facts["epsilon"], 3)
            self.assertGreater(facts["epsilon"], 2.9)

    def test_a_selection_tells_the_best_alone_and_costs_less_than_the_sum(self):
        out = self.train(*SWEEP, "--epsilon", "3", "--sweep-charge", "select", "--json", self.path("facts.json"))
        with open(self.path("facts.json"), encoding="utf-8") as file:
            facts = json.load(file)
        self.assertEqual({"charge", "epsilon", "delta", "noise_multiplier", "best"}, set(facts))
        self.assertEqual(2, len(re.findall("learning rate|trainings", out)), out)
        self.assertLessEqual(facts["epsilon"], 3)
        self.assertGreater(facts["epsilon"], 2.95)
        one = self.facts(*FEW, "--noise-multiplier", str(facts["noise_multiplier"]), "--learn", "none")
        self.assertLess(one["privacy"]["epsilon"], facts["epsilon"])

    def test_a_setting_that_cannot_be_trained_is_the_worst_and_no_more(self):
        wild = [*FEW, "--sweep", "5", "--sweep-range", "1e35", "--epsilon", "3"]
        self.train(*wild, "--json", self.path("facts.json"))
        with open(self.path("facts.json"), encoding="utf-8") as file:
            facts = json.load(file)
        failed = [setting for setting in facts["settings"] if setting["accuracy"] is None]
        self.assertTrue(0 < len(failed) < 5, facts)
        self.assertIsNotNone(facts["best"]["accuracy"])
        self.assertEqual(5, len(facts["settings"]))

    def test_a_sweep_counts_in_its_ledger_and_keeps_the_target_with_what_that_holds(self):
        ledger = self.path("sweep.ledger")
        self.train(*SWEEP, "--noise-multiplier", "2", "--ledger", ledger)
        self.assertEqual(3 * 6, charged(ledger))
        self.train(*SWEEP, "--epsilon", "4", "--ledger", ledger, "--json", self.path("facts.json"))
        with open(self.path("facts.json"), encoding="utf-8") as file:
            self.assertTrue(3.8 < json.load(file)["epsilon"] <= 4)
        self.assertEqual(2 * 3 * 6, charged(ledger))
        select = [*SWEEP, "--epsilon", "3", "--sweep-charge", "select", "--ledger"]
        self.train(*select, self.path("select.ledger"))
        self.refused("must be the first of its ledger", *select, ledger)
        self.refused("must be the first of its ledger", *select, self.path("select.ledger"))

    def test_a_sweep_of_somebodys_data_needs_a_ledger(self):
        self.refuse("--ledger: is required with --data", *SWEEP, "--data", self.folder)

    def test_wrong_arguments_are_refused_in_a_line(self):
        for message, *arguments in (
                ("--learn: lr,size is not a list", "--learn", "lr,size"),
                ("--learn: lr,lr is not a list", "--learn", "lr,lr"),
                ("--weight-decay: 0 is not", "--weight-decay", "0"),
                ("--tuning-rate: 0 is not", "--tuning-rate", "0"),
                ("--momentum: 0 is not above 0", "--momentum", "0", "--learn", "momentum"),
                ("--sweep: 1 is not", "--sweep", "1"),
                ("--sweep-range: 1 is not", "--sweep", "2", "--sweep-range", "1"),
                ("--sweep: needs privacy", "--sweep", "2", "--no-privacy"),
                ("--warmup: has no effect", "--warmup", "3")):
            self.refuse(message, *FEW, *arguments)
        self.refuse("--public-rows: 0 is not", "--public-rows", "0")
        for message, *arguments in (("--sweep: trains for comparison", "--save", self.path("m")),
                                    ("--sweep: has no page", "--report", self.path("page.html")),
                                    ("--validation: 0.2 with --sweep", "--validation", "0.2")):
            self.refuse(message, *SWEEP, *arguments)
        self.assertFalse(os.path.exists(self.path("m.ledger")))


if __name__ == "__main__":
    (TrainingCase.program,) = take_programs(1)
    unittest.main()
