#!/usr/bin/env python3
"""Runs the sample `tabular` as people do: training, evaluation, prediction, schemas, and refusals.

Usage: tabular_test.py PATH_OF_TABULAR [unittest options]
"""

import csv
import gzip
import json
import os
import random
import re
import struct
import unittest

from programs import TrainingCase, WithCommands, charged, read_tensors, run_program, take_programs

ONE = ["--threads", "1"]
MADE_UP = ["--train-size", "1000", "--test-size", "200", "--batch-size", "200", "--epochs", "4"]
SCHEMA = {
    "columns": [
        {"name": "x", "kind": "number", "min": -1, "max": 1},
        {"name": "color", "kind": "category", "categories": ["red", "blue"], "other": True},
        {"name": "who", "kind": "user"},
        {"name": "y", "kind": "label", "categories": ["no", "yes"]},
    ]
}


class InFolder(TrainingCase):
    def write(self, name, text, opener=open):
        with opener(self.path(name), "wt", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def table(self, name="rows.csv", rows=400, users=100, header="x,color,who,y", **changes):
        draw = random.Random(7)
        lines = [header]
        for row in range(rows):
            x, color = draw.uniform(-1, 1), draw.choice(["red", "blue", "green"])
            label = "yes" if (x > 0) != (color == "blue") else "no"
            lines.append(changes.get(str(row), f"{x:.3f},{color},u{row % users},{label}"))
        return self.write(name, "\n".join(lines) + "\n")

    def schema(self, **changes):
        return self.write("schema.json", json.dumps({**SCHEMA, **changes}))


class Training(InFolder):
    def test_people_made_up_by_the_program_can_be_learned(self):
        report, page = self.path("run.json"), self.path("run.html")
        out = self.train(*MADE_UP, "--epsilon", "8", "--json", report, "--report", page)
        self.assertRegex(out.splitlines()[-1],
                         r"^test accuracy \d+\.\d\d %   \(ε = \S+, δ = 1e-05\)   4 epochs in ")
        with open(report, encoding="utf-8") as file:
            facts = json.load(file)
        self.assertGreater(facts["test_accuracy"], 0.7)
        self.assertEqual(["no", "yes"], facts["confusion"]["classes"])
        self.assertEqual(200, sum(facts["confusion"]["counts"]))
        self.assertAlmostEqual(facts["test_accuracy"], float(facts["results"]["accuracy"]), 4)
        with open(page, encoding="utf-8") as file:
            self.assertIn("Results on the test data", file.read())

    def test_every_network_learns_a_rule_that_needs_both_columns(self):
        data, schema = self.table(rows=1200, users=1200), self.schema()
        for network, least in (("mlp", 0.9), ("embedding", 0.9), ("logistic", 0.5)):
            report = self.path(network + ".json")
            self.train("--data", data, "--schema", schema, "--model", network, "--no-privacy",
                       "--epochs", "60", "--batch-size", "50", "--json", report, "--quiet")
            with open(report, encoding="utf-8") as file:
                self.assertGreater(json.load(file)["test_accuracy"], least, network)

    def test_pieces_make_a_linear_model_bend(self):
        draw = random.Random(5)
        rows = "".join(f"{x:.3f},{'yes' if abs(x) < 0.5 else 'no'}\n"
                       for x in (draw.uniform(-1, 1) for _ in range(1000)))
        data = self.write("rows.csv", "x,y\n" + rows)
        schema = self.write("schema.json", json.dumps({"columns": [SCHEMA["columns"][0], SCHEMA["columns"][3]]}))
        accuracy = {}
        for pieces in ("1", "8"):
            report = self.path("run.json")
            self.train("--data", data, "--schema", schema, "--model", "logistic", "--pieces", pieces,
                       "--no-privacy", "--epochs", "60", "--batch-size", "50", "--json", report)
            with open(report, encoding="utf-8") as file:
                accuracy[pieces] = json.load(file)["test_accuracy"]
        self.assertLess(accuracy["1"], 0.75)
        self.assertGreater(accuracy["8"], 0.95)

    def test_the_unit_is_the_user_where_the_schema_names_one(self):
        data, schema, report = self.table(), self.schema(), self.path("run.json")
        self.train("--data", data, "--schema", schema, "--noise-multiplier", "2", "--steps", "3",
                   "--batch-size", "20", "--delta", "1e-3", "--json", report)
        with open(report, encoding="utf-8") as file:
            facts = json.load(file)
        self.assertEqual("all rows with one value of who", facts["privacy"]["unit"])
        settings = {entry["name"]: entry["value"] for entry in facts["settings"]}
        self.assertEqual("80", settings["train size"])  # four fifths of the users
        self.assertEqual("80", settings["test size"])   # and the rows of the others
        # Rows that are kept from --data for the test are private, and nothing protects them.
        self.assertTrue(facts["measured_on_private_data"])
        self.assertIn("Test accuracy: it is measured on private data", facts["not_private"])
        facts = self.facts("--data", data, "--test", data, "--schema", schema, "--noise-multiplier",
                           "2", "--steps", "1", "--batch-size", "20", "--delta", "1e-3")
        self.assertFalse(facts["measured_on_private_data"])

    def test_a_number_is_predicted_in_its_own_units(self):
        draw = random.Random(3)
        rows = [(x, 1000 + 500 * x) for x in (draw.uniform(0, 1) for _ in range(600))]
        data = self.write("rows.csv", "x,price\n" + "".join(f"{x:.4f},{y:.2f}\n" for x, y in rows))
        schema = self.write("schema.json", json.dumps({"columns": [
            {"name": "x", "kind": "number", "min": 0, "max": 1},
            {"name": "price", "kind": "label", "min": 1000, "max": 1500}]}))
        model, out = self.path("m"), self.path("out.csv")
        text = self.train("--data", data, "--schema", schema, "--no-privacy", "--epochs", "60",
                          "--batch-size", "50", "--save", model)
        self.assertRegex(text.splitlines()[-1], r"^test mean squared error 0\.0\d+   \(no privacy\)")
        predicted = self.call("predict", "--model", model, "--data", data, "--out", out)
        self.assertEqual((0, ""), (predicted.returncode, predicted.stderr))
        with open(out, encoding="utf-8") as file:
            lines = list(csv.reader(file))
        self.assertEqual(["price"], lines[0])
        errors = [abs(float(line[0]) - y) for line, (_, y) in zip(lines[1:], rows)]
        self.assertEqual(600, len(errors))
        self.assertLess(sum(errors) / 600, 50)

    def test_a_stopped_training_goes_on_to_the_same_model(self):
        data, schema = self.table(), self.schema()
        common = ["--noise-multiplier", "2", "--batch-size", "20", "--delta", "1e-3", "--quiet",
                  "--sampling", "poisson"]
        self.train("--data", data, "--schema", schema, *common, "--steps", "3", "--save", self.path("m"))
        self.refused("schema is", "train", "--data", data, "--schema",
                     self.schema(missing="-"), "--resume", self.path("m"), "--steps", "5")
        out = self.train("--data", data, "--schema", self.schema(), "--resume", self.path("m"),
                         "--steps", "5")
        self.assertIn("resumed at step 3", out)
        _, metadata = read_tensors(self.path("m"))
        self.assertEqual(5, json.loads(metadata["sotto.privacy"])["releases"])

    def test_means_and_deviations_are_a_part_of_epsilon_and_released_once(self):
        data = self.table(rows=2400, users=1200)
        columns = [{**SCHEMA["columns"][0], "min": -20, "max": 30}, *SCHEMA["columns"][1:]]
        schema = self.schema(columns=columns)
        common = ["--data", data, "--test", data, "--schema", schema]
        settings = ["--epsilon", "4", "--delta", "1e-4", "--batch-size", "200", "--epochs", "2"]
        for model in (["--model", "embedding"], ["--model", "logistic", "--pieces", "4"]):
            name, report = self.path(model[1]), self.path("run.json")
            out = self.train(*common, *settings, *model, "--standardize", "--save", name, "--json", report)
            self.assertIn("means and deviations of 1 columns were released with noise", out)
            tensors, metadata = read_tensors(name)
            places = {"embedding": 1, "logistic": 4}[model[1]]  # red, blue and other categories are inputs
            self.assertEqual(("F32", (places,)), tensors["standardize.mean"][:2])
            mean, deviation = (struct.unpack(f"<{places}f", tensors["standardize." + each][2])
                               for each in ("mean", "deviation"))
            self.assertLess(abs(mean[0] - 20 / 50), 0.1)
            self.assertTrue(0.005 < deviation[0] < 0.15)  # 0.58 / 50, or what the noise hides
            self.assertEqual(((0,) * (places - 1), (1,) * (places - 1)), (mean[1:], deviation[1:]))
            statement = json.loads(metadata["sotto.privacy"])
            self.assertEqual(12 + 1, statement["releases"])
            self.assertTrue(3.9 < statement["epsilon"] <= 4)
            done = self.call("evaluate", "--model", name, "--data", data)
            self.assertEqual((0, ""), (done.returncode, done.stderr))
            with open(report, encoding="utf-8") as file:
                self.assertIn(f"accuracy  {json.load(file)['test_accuracy']:.4f}", re.sub(r" {3,}", "  ", done.stdout))
        noisy = ["--noise-multiplier", "2", "--delta", "1e-4", "--batch-size", "200", "--standardize"]
        self.assertIn("resumed at step 12", self.train(*common, "--resume", self.path("embedding")))
        self.train(*common, *noisy, "--steps", "2", "--save", self.path("m"))
        before, _ = read_tensors(self.path("m"))
        self.train(*common, "--resume", self.path("m"), "--steps", "3")
        after, metadata = read_tensors(self.path("m"))
        self.assertEqual(before["standardize.mean"], after["standardize.mean"])
        self.assertEqual(4, json.loads(metadata["sotto.privacy"])["releases"])
        self.refused("--no-privacy", "train", *common, "--standardize", "--no-privacy")
        self.refused("--compare", "train", *common, *settings, "--standardize", "--compare")
        self.refused("nothing is left of the target", "train", *common, "--epsilon", "0.05", *settings[2:], "--standardize")
        known = [{"name": "x", "kind": "number", "mean": 0, "deviation": 1}, *SCHEMA["columns"][1:]]
        self.refused("--standardize: the schema has no number with a range", "train", "--data", data, "--schema",
                     self.schema(columns=known), "--standardize")

    def test_what_cannot_be_saved_is_not_standardised(self):
        data = self.table(rows=240, users=120)
        columns = [{**SCHEMA["columns"][0], "min": -20, "max": 30}, *SCHEMA["columns"][1:]]
        common = ["--data", data, "--test", data, "--schema", self.schema(columns=columns)]
        os.mkdir(self.path("m.statistics.json"))
        done = self.call("train", *common, "--noise-multiplier", "2", "--delta", "1e-3", "--batch-size", "20", "--steps",
                         "2", "--standardize", "--statistics", "--save", self.path("m"))
        self.told(done, 1, "it is saved as " + self.path("m.rescue"))
        self.assertEqual(0, charged(self.path("m.ledger")))
        out = self.train(*common, "--resume", self.path("m.rescue"), "--ledger", self.path("m.ledger"))
        self.assertIn("means and deviations of 1 columns", out)
        self.assertEqual(3, charged(self.path("m.ledger")))

    def test_other_data_are_told_and_within_an_epoch_refused(self):
        rows = [f"{k % 7},{'yes' if k % 3 else 'no'}\n" for k in range(240)]
        data = self.write("rows.csv", "x,y\n" + "".join(rows))
        schema = self.write("schema.json", json.dumps({"columns": [
            {"name": "x", "kind": "number", "min": 0, "max": 7},
            {"name": "y", "kind": "label", "categories": ["no", "yes"]}]}))
        common = ["--data", data, "--test", data, "--schema", schema]
        noisy = ["--noise-multiplier", "2", "--delta", "1e-3", "--batch-size", "60", "--steps", "2"]
        for sampling in ("poisson", "partition", "balls_and_bins"):
            self.train(*common, *noisy, "--sampling", sampling, "--accountant", "rdp", "--save", self.path(sampling))
        self.assertNotIn("resumed, but", self.train(*common, "--resume", self.path("partition")))
        changed = [rows[1], rows[0], *rows[2:-1], "6,no\n"]
        for other in ([*rows[1:], rows[0]], changed):
            self.write("rows.csv", "x,y\n" + "".join(other))
            out = self.train(*common, "--resume", self.path("poisson"), "--quiet")
            for part in ("training", "test"):
                self.assertIn(f"resumed, but the {part} data are not those of the checkpoint", out)
            for sampling in ("partition", "balls_and_bins"):
                self.refused("the data are not those of the checkpoint, which was written within an epoch", "train",
                             *common, "--resume", self.path(sampling))
            self.write("rows.csv", "x,y\n" + "".join(rows))
            self.train(*common, *noisy, "--save", self.path("again"))
            os.rename(self.path("again.state"), self.path("poisson.state"))
            os.rename(self.path("again.ledger"), self.path("poisson.ledger"))
            os.remove(self.path("again"))

    def test_a_budget_that_is_spent_elsewhere_ends_a_run_as_its_last_step_does(self):
        data = self.table(rows=240, users=120)
        common = ["--data", data, "--test", data, "--schema", self.schema(), "--delta", "1e-3"]
        os.mkdir(self.path("m.statistics.json"))
        self.call("train", *common, "--batch-size", "20", "--epsilon", "2", "--steps", "50", "--statistics", "--save",
                  self.path("m"))
        ledger = self.path("m.ledger")
        self.train(*common, "--batch-size", "20", "--noise-multiplier", "0.4", "--steps", "2", "--ledger", ledger)
        out = self.train(*common[:-2], "--resume", self.path("m.rescue"), "--ledger", ledger)
        self.assertIn("nothing left to do: resumed at step 0 of 50: the target epsilon 2 is spent", out)
        self.assertEqual(2, charged(ledger))

    def test_releases_about_somebody_that_no_ledger_counts_are_told(self):
        data = self.table(rows=240, users=120)
        noisy = ["--noise-multiplier", "2", "--delta", "1e-3", "--batch-size", "20", "--steps", "1"]
        common = ["--data", data, "--schema", self.schema(), *noisy]
        told = "the releases are in no ledger file"
        self.assertIn(told, self.train(*common))
        self.assertNotIn(told, self.train(*common, "--save", self.path("m")))
        self.assertNotIn(told, self.train(*common, "--ledger", self.path("m.ledger")))
        self.assertNotIn(told, self.train("--noise-multiplier", "2", "--steps", "1"))

    def test_results_that_cannot_be_written_are_written_elsewhere(self):
        data = self.table(rows=240, users=120)
        common = ["--data", data, "--schema", self.schema(), "--delta", "1e-3", "--batch-size", "20"]
        self.train(*common, "--noise-multiplier", "2", "--steps", "1", "--save", self.path("m"))
        done = run_program([self.program, "evaluate", "--model", self.path("m"), "--data", data, "--json", "/dev/full"],
                           env={**os.environ, "TMPDIR": self.folder})
        self.told(done, 1, "it is saved as " + self.path("full.rescue"))
        with open(self.path("full.rescue"), encoding="utf-8") as file:
            self.assertTrue(file.read().startswith("{"))

    def test_class_weights_multiply_the_losses_of_their_classes(self):
        draw = random.Random(5)
        rows = "".join(f"{draw.uniform(-1, 1):.3f},{'yes' if draw.random() < 0.2 else 'no'}\n" for _ in range(600))
        data = self.write("rows.csv", "x,y\n" + rows)
        schema = self.write("schema.json", json.dumps({"columns": [SCHEMA["columns"][0], SCHEMA["columns"][3]]}))
        common = ["--data", data, "--test", data, "--schema", schema, "--delta", "1e-4", "--batch-size", "200",
                  "--epochs", "20", "--model", "logistic"]
        yes = {}
        for weights in (["--class-weights", "0.025,1"], []):
            counts = self.facts(*common, "--epsilon", "8", *weights)["confusion"]["counts"]
            yes[bool(weights)] = counts[1] + counts[3]
        self.assertEqual(0, yes[False])
        self.assertGreater(yes[True], 500)
        for weights, message in (("1", "1 weights for 2 classes: no, yes"), ("1,2,3", "3 weights"), ("1,-2", "'-2'"),
                                 ("1,x", "'x'"), ("1,nan", "'nan'"), ("1,1e99", "'1e99'"), ("1,", "'1,' ends"), ("1,2,", "'1,2,' ends"),
                                 ("1,,2", "''")):
            self.refused("--class-weights: " + message, "train", *common, "--class-weights", weights)

    def test_private_and_ordinary_training_are_compared(self):
        out = self.train(*MADE_UP, "--epsilon", "8", "--compare")
        self.assertRegex(out.splitlines()[-2], r"^without privacy: test accuracy \d+\.\d\d %, which is NOT PRIVATE$")


class Using(InFolder):
    def setUp(self):
        super().setUp()
        self.data = self.table(rows=600, users=600)
        self.model = self.path("m.safetensors")
        self.train("--data", self.data, "--schema", self.schema(), "--no-privacy", "--epochs", "40",
                   "--batch-size", "50", "--quiet", "--save", self.model)

    def test_evaluate_and_predict_agree(self):
        result, out = self.path("e.json"), self.path("p.csv")
        done = self.call("evaluate", "--model", self.model, "--data", self.data, "--json", result)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        with open(result, encoding="utf-8") as file:
            facts = json.load(file)
        done = self.call("predict", "--model", self.model, "--data", self.data, "--out", out)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        with open(out, encoding="utf-8") as file:
            predicted = list(csv.DictReader(file))
        with open(self.data, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        right = sum(p["y"] == row["y"] for p, row in zip(predicted, rows, strict=True))
        self.assertAlmostEqual(facts["accuracy"], right / len(rows), 4)
        for line in predicted:
            self.assertAlmostEqual(1, float(line["p(no)"]) + float(line["p(yes)"]), 5)
        at = facts["confusion"]
        self.assertEqual(right, at[0] + at[3])

    def test_rows_to_predict_need_no_label_and_may_be_compressed(self):
        out = self.path("p.csv")
        data = self.write("new.csv.gz", "color,x\nred,0.9\npink,-0.9\n", gzip.open)
        done = self.call("predict", "--model", self.model, "--data", data, "--out", out)
        self.assertEqual((0, "", f"2 predictions in {out}\n"),
                         (done.returncode, done.stderr, done.stdout))
        with open(out, encoding="utf-8") as file:
            self.assertEqual(["yes", "no"], [line["y"] for line in csv.DictReader(file)])

    def test_what_is_wrong_is_named_and_no_file_is_left(self):
        for text, message in (("x,color\nred,1\n", r"new\.csv: line 2, column x: 'red'"),
                              ("x\n1\n", r"new\.csv.*color"),
                              ("x,color,z\n1,red,2\n", r"new\.csv.*z")):
            data = self.write("new.csv", text)
            self.refused(message, "predict", "--model", self.model, "--data", data, "--out",
                         self.path("p.csv"))
        self.refused("not a model|no tensors|safetensors", "evaluate", "--model", self.data, "--data", self.data)
        self.refused("--out: is required", "predict", "--model", self.model, "--data", self.data)


class People(InFolder):
    def test_a_table_of_people_is_what_training_without_data_reads(self):
        for name, rows, first in (("train", "300", "40"), ("test", "40", "0")):
            done = self.call("people", "--out", self.path(name), "--schema", self.path("schema"), "--rows",
                       rows, "--first", first, "--seed", "3")
            self.assertEqual((0, "", ""), (done.returncode, done.stderr, done.stdout))
        results = []
        for where in (["--data", self.path("train"), "--test", self.path("test"), "--schema",
                       self.path("schema")], ["--train-size", "300", "--test-size", "40"]):
            model = self.path(f"model{len(results)}")
            self.train(*where, "--no-privacy", "--steps", "4", "--batch-size", "50", "--seed", "3",
                       "--save", model)
            results.append(read_tensors(model)[0])
        self.assertEqual(results[0], results[1])
        self.refused("--out: is required", "people")
        self.refused("--rows: 0", "people", "--out", self.path("p"), "--rows", "0")


class Refusals(WithCommands, InFolder):
    """Nothing is spent or written for settings and rows that cannot be trained on."""

    commands = ("train", "evaluate", "predict", "schema", "people")

    def refuse(self, message, *arguments, data=None):
        data, schema = data or self.table(), self.schema()
        self.refused(message, "train", "--data", data, "--schema", schema, "--epsilon", "2",
                     "--delta", "1e-3", "--batch-size", "20", *ONE, *arguments, "--save",
                     self.path("m"))

    def test_rows_that_do_not_fit_the_schema(self):
        self.refuse("line 3, column x: 'high'", data=self.table(**{"1": "high,red,u1,no"}))
        self.refuse("line 4, column y: unknown category 'maybe'", data=self.table(**{"2": "0,red,u1,maybe"}))
        self.refuse("line 5: 3 fields", data=self.table(**{"3": "0,red,u1"}))
        self.refuse("zzz", data=self.table(header="zzz,color,who,y"))

    def test_one_user_owns_everything(self):
        self.refuse("all 400 samples belong to one unit", "--test", self.table("t.csv"),
                    data=self.table("one.csv", users=1))

    def test_data_and_schema_come_together(self):
        self.refused("--data, --schema: give both", "train", "--data", self.table())
        self.refused("--data, --schema: give both", "train", "--schema", self.schema())
        self.refused("--test: needs --data", "train", "--test", self.table())

    def test_a_delta_that_allows_to_publish_a_row(self):
        self.refused("delta", "train", "--data", self.table(), "--schema", self.schema(), "--epsilon",
                     "2", "--delta", "0.5", "--batch-size", "20", "--save", self.path("m"))

    def test_a_batch_of_more_than_all_units_is_refused_when_their_number_is_known(self):
        self.refused("--batch-size: 30000 is not above 0 and at most the 80 training", "train", "--data",
                     self.table(), "--schema", self.schema(), "--epsilon", "2", "--delta", "1e-3",
                     "--batch-size", "30000")

    def test_numbers_out_of_range(self):
        for option, value in (("--hidden", "0"), ("--layers", "100"), ("--embedding", "0"), ("--pieces", "0"),
                              ("--test-fraction", "1")):
            self.refuse(re.escape(option), option, value)


if __name__ == "__main__":
    (TrainingCase.program,) = take_programs(1)
    unittest.main()
