#!/usr/bin/env python3
"""Runs `tabular schema`, and training on what it wrote: schemas that are guessed, and those that are paid for.

Usage: tabular_schema_test.py PATH_OF_TABULAR [unittest options]
"""

import json
import os
import re
import struct
import unittest

from programs import TrainingCase, charged, read_tensors, run_program, take_programs
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


class Prototypes(InFolder):
    def test_a_linear_model_starts_at_the_means_of_public_rows(self):
        rows = [(x / 100, "yes" if x > 0 else "no") for x in range(-99, 100, 2)]
        data = self.write("rows.csv", "x,y\n" + "".join(f"{x},{y}\n" for x, y in rows))
        schema = self.write("schema.json", json.dumps({"columns": [SCHEMA["columns"][0], SCHEMA["columns"][3]]}))
        public = self.write("public.csv", "x,y\n-0.6,no\n0.5,yes\n-0.4,no\n")
        model, unbiased = self.path("m.safetensors"), self.path("unbiased.safetensors")
        still = ["--data", data, "--test", data, "--schema", schema, "--model", "logistic", "--no-privacy",
                 "--batch-size", "50", "--steps", "1", "--lr", "1e-9"]
        facts = self.facts(*still, "--prototypes", public, "--save", model)
        self.assertEqual(1, facts["test_accuracy"])
        tensors = read_tensors(model)[0]
        weight, bias = (struct.unpack("<2f", tensors[f"layers.0.{each}"][2]) for each in ("weight", "bias"))
        for got, wanted in zip(weight + bias, (-2.5, 2.5, 1.25, -1.25)):  # of the places 1/4 and 3/4 in the range
            self.assertAlmostEqual(wanted, got, places=5)
        facts = self.facts(*still, "--prototypes", public, "--prototype-scale", "2", "--no-bias", "--save",
                           unbiased)
        self.assertEqual(0.5, facts["test_accuracy"])  # larger x, larger logit of yes
        tensors = read_tensors(unbiased)[0]
        self.assertEqual({"layers.0.weight"}, set(tensors))
        self.assertAlmostEqual(0.5, struct.unpack("<2f", tensors["layers.0.weight"][2])[1], places=5)
        measured = self.call("evaluate", "--model", unbiased, "--data", data)
        self.assertEqual((0, ""), (measured.returncode, measured.stderr))
        private = [word for word in still if word != "--no-privacy"] + ["--noise-multiplier", "1", "--delta", "1e-3"]
        told = " ".join(self.facts(*private, "--prototypes", public)["privacy"]["not_covered"])
        self.assertIn(f"The rows of {public}, at whose means training starts: they must be public", told)
        self.assertIn("The table's schema, with its columns, categories and ranges: it must be public", told)
        self.refused("rows.csv is --data, whose rows are not public", "train", *private, "--prototypes", data)
        one = self.write("one.csv", "x,y\n-0.6,no\n")
        self.refused("--prototypes: no row has the class yes", "train", *still, "--prototypes", one)
        for words, part in ((["--pieces", "4"], "only --model logistic of classes, without --pieces"),
                            (["--prototype-scale", "0"], "--prototype-scale: 0 is not a positive number")):
            self.refused(part, "train", *still, "--prototypes", public, *words)


class OddTables(InFolder):
    """Tables as other programs write them: from the schema to training and prediction."""

    ROWS = [(k % 40 + 20, "red blue green".split()[k % 3], "yn"[k % 2]) for k in range(60)]

    def lines(self, header, row):
        return "\n".join([header] + [row.format(k, *fields) for k, fields in enumerate(self.ROWS)]) + "\n"

    def predictions(self, data, model):
        out = self.path("p.csv")
        done = self.call("predict", "--model", model, "--data", data, "--out", out)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        with open(out, encoding="utf-8") as file:
            return file.read()

    def test_each_is_read_from_the_schema_to_predictions(self):
        plain = self.lines("age,color,y", "{1},{2},{3}")
        tables = {
            "plain": plain, "pandas": self.lines(",age,color,y", "{0},{1},{2},{3}"),
            "R": self.lines('"age","color","y"', '"{0}",{1},"{2}","{3}"'),
            "repeated": self.lines("age,age,color,y", "{1},5,{2},{3}"),
            "trailing": self.lines("age,color,y,", "{1},{2},{3},"),
            "trailing rows": self.lines("age,color,y", "{1},{2},{3},"),
            "comments": "# made by x\n#\n" + plain + "# the end\n", "excel": "sep=;\n" + plain.replace(",", ";"),
            "dos": plain.replace("\n", "\r\n") + "\x1a", "mac": plain.replace("\n", "\r"),
        }
        found = set()
        for name, text in tables.items():
            data, schema, model = self.write(f"{name}.csv", text), self.path(f"{name}.json"), self.path(name)
            done = self.call("schema", "--data", data, "--out", schema, "--i-made-this-public")
            self.assertEqual((0, ""), (done.returncode, done.stderr), name)
            self.train("--data", data, "--schema", schema, "--no-privacy", "--steps", "3", "--batch-size", "60",
                       "--test", data, "--save", model, "--quiet")
            found.add(self.predictions(data, model))
        self.assertEqual(1, len(found))
        self.assertEqual(61, found.pop().count("\n"))

    def test_an_unclear_header_is_asked_for(self):
        data = self.write("t.csv", "".join(f"{color} {k},{y}\n" for k, (_, color, y) in enumerate(self.ROWS)))
        self.refused("--header: schema: .*t.csv: it is unclear whether line 1 has the names of the columns, .*: say "
                     "--header yes or --header no", "schema", "--data", data)
        for answer in ("yes", "no"):
            done = self.call("schema", "--data", data, "--header", answer)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            self.assertIn('  // as it was said, not by the rows\n  "header": ' + ("true" if answer == "yes" else "false"),
                          done.stdout)
        self.refused("--header: maybe is not one of auto, yes, no", "schema", "--data", data, "--header", "maybe")
        self.refused("t.xlsx.csv: not CSV: it looks like a zip archive", "schema", "--data",
                     self.write("t.xlsx.csv", "PK\3\4"))

    def test_predictions_stay_beside_their_rows(self):
        schema = {"columns": [{"name": "x", "kind": "number", "min": 0, "max": 9, "missing": 5},
                              {"name": "y", "kind": "label", "categories": ["y", "n"]}]}
        data = self.write("t.csv", "x,y\n" + "".join(f"{k % 10},{'yn'[k % 10 > 4]}\n" for k in range(60)))
        model, path = self.path("m"), self.write("s.json", json.dumps(schema))
        self.train("--data", data, "--schema", path, "--no-privacy", "--epochs", "20", "--batch-size", "10",
                   "--test", data, "--save", model, "--quiet")
        blank = self.predictions(self.write("b.csv", "x\n1\n\n9\n"), model)
        filled = self.predictions(self.write("f.csv", "x\n1\n5\n9\n"), model)
        self.assertEqual(filled, blank)


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

    def test_a_schema_that_was_paid_for_is_not_lost(self):
        done = run_program([self.program, *self.pay("--out", "/dev/full")],
                           env={**os.environ, "TMPDIR": self.folder})
        self.told(done, 1, f"it is saved as {self.path('full.rescue')}")
        os.rename(self.path("full.rescue"), self.paid)
        self.train("--data", self.data, "--test", self.data, "--schema", self.paid, "--delta", "1e-4", "--batch-size",
                   "300", "--noise-multiplier", "3", "--steps", "1", "--ledger", self.ledger)
        os.remove(self.ledger)
        done = run_program([self.program, *self.pay("--out", "/dev/full")],
                           env={**os.environ, "TMPDIR": self.path("nowhere")})
        self.told(done, 1, "No space left")
        self.assertIn('"columns"', done.stdout)
        os.remove(self.ledger)
        with open("/dev/full", "wb") as full:
            done = run_program([self.program, *self.pay()], stdout=full, env={**os.environ, "TMPDIR": self.folder})
        self.told(done, 1, f"it is saved as {self.path('sotto-results.rescue')}")
        with open(self.path("sotto-results.rescue"), encoding="utf-8") as file:
            self.assertIn('"columns"', file.read())

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
