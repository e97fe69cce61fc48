#!/usr/bin/env python3
"""Runs `tabular schema`, and training on what it wrote: schemas that are guessed, and those that are paid for.

Usage: tabular_schema_test.py PATH_OF_TABULAR [unittest options]
"""

import json
import os
import re
import unittest

from programs import TrainingCase, charged, read_tensors, take_programs
from tabular_test import SCHEMA, InFolder


class Schemas(InFolder):
    def test_a_proposed_schema_says_what_was_read_and_is_written_by_hand_only(self):
        data = self.table()
        done = self.call("schema", "--data", data, "--label", "y", "--user", "who")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertIn("// ", done.stdout)
        self.refused("--i-made-this-public", "schema", "--data", data, "--out", self.path("s.json"))
        done = self.call("schema", "--data", data, "--label", "y", "--user", "who", "--out",
                   self.path("s.json"), "--i-made-this-public")
        self.assertEqual((0, "", ""), (done.returncode, done.stderr, done.stdout))
        self.train("--data", data, "--schema", self.path("s.json"), "--noise-multiplier", "2",
                   "--steps", "2", "--batch-size", "20", "--delta", "1e-3")


class PaidSchemas(InFolder):
    DRAFT = {"columns": [{"name": "x", "kind": "number"}, *SCHEMA["columns"][1:]]}

    def setUp(self):
        super().setUp()
        self.data = self.table(rows=2400, users=1200)
        self.draft = self.write("draft.json", json.dumps(self.DRAFT))
        self.paid, self.ledger = self.path("paid.json"), self.path("l.ledger")

    def pay(self, *more, epsilon="0.5"):
        return ("schema", "--data", self.data, "--schema", self.draft, "--schema-epsilon", epsilon, "--delta",
                "1e-4", "--ledger", self.ledger, *more)

    def spend(self, *arguments):
        done = self.call(*arguments)
        self.assertEqual((0, "", ""), (done.returncode, done.stderr, done.stdout))

    def test_training_goes_on_with_the_rest_of_the_budget(self):
        self.spend(*self.pay("--out", self.paid))
        with open(self.paid, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("// released with noise: all that was released has epsilon 0.5 and delta 0.0001\n", text)
        column = json.loads(re.sub(r"^ *//.*$", "", text, flags=re.M))["columns"][0]
        self.assertEqual((-1, 1), (column["min"], column["max"]))
        self.assertLess(abs(column["mean"]), 0.3)
        self.assertEqual(column["mean"], column["missing"])
        common = ["--data", self.data, "--test", self.data, "--schema", self.paid, "--delta", "1e-4",
                  "--batch-size", "300", "--epsilon", "2"]
        alone = self.facts(*common, "--epochs", "2")
        after = self.facts(*common, "--epochs", "2", "--ledger", self.ledger, "--save", self.path("m"))
        self.assertLessEqual(after["privacy"]["epsilon"], 2)
        self.assertGreater(after["privacy"]["epsilon"], 1.9)
        self.assertIn("adaptive", after["privacy"]["composition"])
        self.assertEqual(2 + 8, after["privacy"]["releases"])
        self.assertEqual(8, alone["privacy"]["releases"])
        self.assertFalse(os.path.exists(self.path("m.ledger")))
        self.refused("nothing is left of the target", "train", *common[:-1], "1", "--ledger", self.ledger)
        _, metadata = read_tensors(self.path("m"))
        self.assertEqual(10, json.loads(metadata["sotto.privacy"])["releases"])

    def test_categories_are_paid_for_as_ranges_are(self):
        unlisted = [*self.DRAFT["columns"][:1], {"name": "color", "kind": "category"}, *self.DRAFT["columns"][2:]]
        self.write("draft.json", json.dumps({"columns": unlisted}))
        self.spend(*self.pay("--out", self.paid, epsilon="4"))
        with open(self.paid, encoding="utf-8") as file:
            text = re.sub(r"^ *//.*$", "", file.read(), flags=re.M)
        self.assertEqual({"name": "color", "kind": "category", "categories": ["blue", "green", "red"], "other": True},
                         json.loads(text)["columns"][1])
        self.assertEqual(4, charged(self.ledger))
        self.train("--data", self.data, "--test", self.data, "--schema", self.paid, "--delta", "1e-4", "--batch-size",
                   "300", "--epsilon", "6", "--steps", "2", "--ledger", self.ledger)

    def test_a_training_on_a_continued_ledger_goes_on_after_a_stop(self):
        self.spend(*self.pay("--out", self.paid))
        common = ["--data", self.data, "--test", self.data, "--schema", self.paid, "--delta", "1e-4",
                  "--batch-size", "300", "--ledger", self.ledger]
        self.train(*common, "--noise-multiplier", "3", "--steps", "2", "--save", self.path("m"))
        out = self.train("--data", self.data, "--test", self.data, "--schema", self.paid, "--ledger", self.ledger,
                         "--resume", self.path("m"), "--steps", "4")
        self.assertIn("resumed at step 2", out)
        self.assertEqual(6, charged(self.ledger))

    def test_the_ledger_is_of_the_same_units(self):
        self.spend(*self.pay("--out", self.paid))
        common = ("train", "--data", self.data, "--schema", self.paid, "--epsilon", "2", "--delta", "1e-4",
                  "--batch-size", "100", "--ledger")
        self.refused("--ledger: .* counts 1200 units and the training data have 960", *common, self.ledger)
        other = self.write("other.ledger", "")
        self.refused("other.ledger", *common, other)
        self.refused("--ledger: there is no ", *common, self.path("none.ledger"))
        self.refused("--ledger: .*one value of who, .*one training example", "train", "--epsilon", "2", "--ledger",
                     self.ledger)
        self.assertEqual(2, charged(self.ledger))

    def test_nothing_is_spent_for_what_cannot_be_paid_for(self):
        self.refused("the budget is too small", *self.pay(epsilon="0.001"))
        self.refused("--schema-epsilon: -1", *self.pay(epsilon="-1"))
        self.refused("--delta: needs --schema-epsilon", "schema", "--data", self.data, "--delta", "0.1")
        self.refused("give all three", *self.pay()[:5])
        self.refused("give all three", "schema", "--data", self.data, "--schema-epsilon", "1")
        self.refused("no number lacks a range", "schema", "--data", self.data, "--schema", self.schema(),
                     "--schema-epsilon", "1", "--ledger", self.ledger)
        unlisted = [*self.DRAFT["columns"][:1], {"name": "color", "kind": "category"}, *self.DRAFT["columns"][2:]]
        draft = self.write("d.json", json.dumps({"columns": unlisted}))
        self.refused("column color: no list of categories", "train", "--data", self.data, "--schema", draft)
        self.refused("the budget is too small", "schema", "--data", self.data, "--schema", draft, "--schema-epsilon",
                     "0.5", "--delta", "1e-4", "--ledger", self.ledger)
        unlisted[-1] = {"name": "y", "kind": "label"}  # classes are to be listed
        draft = self.write("d.json", json.dumps({"columns": unlisted}))
        self.refused("column y: '(yes|no)' is not a number", "schema", "--data", self.data, "--schema", draft,
                     "--schema-epsilon", "4", "--delta", "1e-4", "--ledger", self.ledger)
        data = self.table("wrong.csv", rows=2400, **{"5": "1,purple,u1,maybe"})
        self.refused("wrong.csv: line 7", "schema", "--data", data, *self.pay()[3:])
        self.write("l.ledger", "")
        self.refused("--ledger: .*exists already", *self.pay())


if __name__ == "__main__":
    (TrainingCase.program,) = take_programs(1)
    unittest.main()
