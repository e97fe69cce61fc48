#!/usr/bin/env python3
"""Tunes small published models by the samples `text`, `embed` and `tabular`, as people do, and gives them back.

Usage: tuned_text_test.py PATH_OF_TEXT PATH_OF_EMBED PATH_OF_TABULAR [unittest options]
"""

import csv
import json
import os
import re
import shutil
import unittest

from programs import TrainingCase, read_tensors, run_program, take_programs
from small_pretrained import write_bert, write_gpt2

GOOD, BAD, ANY = ["fine", "great", "lovely"], ["poor", "dull", "awful"], ["a", "film", "the", "plot", "was"]
STEPS = ["--context", "8"]
PRIVATE = [*STEPS, "--delta", "1e-3"]


class Tuned(TrainingCase):
    def setUp(self):
        super().setUp()
        self.bert, self.gpt2 = self.path("bert"), self.path("gpt2")
        write_bert(self.bert, GOOD + BAD + ANY)
        write_gpt2(self.gpt2)

    def table(self, name="reviews.tsv", rows=160):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write("who\tlabel\ttext\n")
            for k in range(rows):
                word = (GOOD if k % 2 else BAD)[k // 2 % 3]
                file.write(f"person{k % 50}\t{'good' if k % 2 else 'bad'}\tthe {ANY[k % 5]} was {word}\n")
        return self.path(name)

    def lines(self):
        with open(self.path("lines.txt"), "w", encoding="utf-8") as file:
            file.write("the film was fine\n")
        return self.path("lines.txt")

    def command(self, *words):
        done = self.call(*words)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout

    def tune(self, *words):
        return self.train("--init", self.bert, "--data", self.table(), "--label-column", "label", *PRIVATE, *words)


class Classifier(Tuned):
    def test_every_tuning_learns_two_words(self):
        for tune, least in (("all", 0.95), ("head", 0.6), ("bitfit", 0.6), ("norms", 0.6), ("last:1", 0.9),
                            ("lora:4,alpha=16", 0.9)):
            facts = self.facts("--init", self.bert, "--data", self.table(), "--label-column", "label", *STEPS,
                               "--tune", tune, "--no-privacy", "--epochs", "30", "--batch-size", "40", "--lr", "0.02")
            self.assertGreater(facts["test_accuracy"], least, tune)

    def test_a_private_model_is_saved_measured_and_used(self):
        model, out = self.path("m.safetensors"), self.path("classes.csv")
        self.tune("--tune", "lora:2", "--batch-size", "40", "--epsilon", "8", "--epochs", "2", "--save", model, "--head-bound", "1")
        names = read_tensors(model)[0]
        self.assertTrue(all("lora" in name or name.startswith(("pooler", "classifier")) for name in names), names)
        measured = self.path("measured.json")
        told = self.command("evaluate", "--model", model, "--data", self.table(), "--json", measured)
        self.assertIn("160 units", told)
        with open(measured, encoding="utf-8") as file:
            counts = json.load(file)["confusion"]
        self.assertEqual([80, 80], [sum(counts[:2]), sum(counts[2:])])  # labels are read, too
        self.refused("has no classes to measure by", "evaluate", "--model", model, "--data", self.lines())
        self.command("predict", "--model", model, "--data", self.table(), "--out", out)
        with open(out, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(160, len(rows))
        self.assertEqual({"unit", "class", "p(bad)", "p(good)"}, set(rows[0]))

    def test_the_statement_says_that_base_and_classes_are_taken_as_public(self):
        model, page = self.path("m.safetensors"), self.path("page.json")
        self.tune("--tune", "head", "--batch-size", "40", "--epsilon", "8", "--epochs", "1", "--save", model,
                  "--json", page)
        with open(page, encoding="utf-8") as file:
            of_page = json.load(file)["privacy"]["not_covered"]
        saved = json.loads(read_tensors(model)[1]["sotto.privacy"])["not_covered"]
        for told in of_page, saved:
            self.assertTrue([text for text in told if f"the weights of {self.bert} were trained on" in text], told)
            self.assertTrue([text for text in told if text.startswith("The names of the classes")], told)

    def test_the_head_has_a_bound_and_a_rate_of_its_own(self):
        words = ["--batch-size", "40", "--epsilon", "8", "--epochs", "1"]
        self.tune("--tune", "head", "--head-bound", "2", "--head-lr", "0.1", *words)
        page = self.path("page.json")
        self.tune("--tune", "lora:2", "--head-bound", "2", *words, "--json", page)
        with open(page, encoding="utf-8") as file:
            self.assertIn("in 2 groups by the rule \"minimum\" to bounds 1, 2", json.load(file)["privacy"]["clipping"])
        self.refused("--clip-groups: layers: with --head-bound", "train", "--init", self.bert, "--data", self.table(),
                     "--label-column", "label", *PRIVATE, *words, "--head-bound", "2", "--clip-groups", "layers")

    def test_a_model_knows_the_weights_that_it_was_tuned_from(self):
        model = self.path("m.safetensors")
        self.tune("--tune", "last:1", "--batch-size", "40", "--epsilon", "8", "--epochs", "1", "--save", model)
        use = ["predict", "--model", model, "--data", self.table(), "--out", self.path("classes.csv")]
        self.command(*use)
        shutil.rmtree(self.bert)
        write_bert(self.bert, GOOD + BAD + ANY, seed=2)
        self.refused("its weights are not those that the model was tuned from", *use)

    def test_a_user_is_a_unit(self):
        out = self.tune("--tune", "head", "--unit", "user", "--user-column", "who", "--epsilon", "8",
                        "--epochs", "1", "--batch-size", "20")
        self.assertIn("40 training and", out)  # of 50 people

    def test_a_run_that_was_saved_goes_on(self):
        model = self.path("m.safetensors")
        words = ["--tune", "bitfit", "--batch-size", "40", "--noise-multiplier", "2", "--save", model]
        self.tune(*words, "--steps", "2")
        data = ["--data", self.table(), "--label-column", "label"]
        out = self.train("--resume", model, "--init", self.bert, *data, "--steps", "4")
        self.assertIn("resumed at step 2", out)

    def test_a_dry_run_spends_and_writes_nothing(self):
        model = self.path("m.safetensors")
        out = self.tune("--tune", "lora:2", "--batch-size", "40", "--epsilon", "8", "--epochs", "2", "--save", model, "--dry-run")
        self.assertRegex(out, r"trained: \d+ numbers, .* frozen: \d+,")
        self.assertRegex(out, r"epsilon 8 for \d+ steps at delta 0.001, noise multiplier")
        self.assertRegex(out, r"steps per second: some \d+ s for \d+ steps; peak of tensors")
        self.assertFalse(os.path.exists(model))
        self.assertFalse(os.path.exists(model + ".ledger"))

    def test_a_tuned_model_goes_back_to_where_it_came_from(self):
        model = self.path("m.safetensors")
        self.tune("--tune", "lora:2", "--batch-size", "40", "--epsilon", "8", "--epochs", "1", "--save", model)
        self.command("export", "--model", model, "--out", self.path("whole"))
        with open(self.path("whole/privacy_statement.json"), encoding="utf-8") as file:
            self.assertGreaterEqual(8, json.load(file)["epsilon"])
        tensors = read_tensors(self.path("whole/model.safetensors"))[0]
        self.assertIn(("F32", (2, 16)), [tensor[:2] for name, tensor in tensors.items() if "classifier" in name])
        self.assertFalse([name for name in tensors if "lora" in name])
        self.assertEqual({"config.json", "model.safetensors", "privacy_statement.json", "vocab.txt"},
                         set(os.listdir(self.path("whole"))))
        again = self.train("--init", self.path("whole"), "--data", self.table(), "--label-column", "label", *STEPS,
                           "--no-privacy", "--epochs", "1", "--batch-size", "40")
        self.assertIn("test accuracy", again)
        with open(self.path("whole/config.json"), encoding="utf-8") as file:
            self.assertEqual("bert", json.load(file)["model_type"])
        self.command("export", "--model", model, "--out", self.path("adapter"), "--adapter")
        names = read_tensors(self.path("adapter/adapter_model.safetensors"))[0]
        self.assertTrue([name for name in names if name.endswith("query.lora_A.weight")], names)

    def test_an_export_tells_that_a_pooling_is_ours(self):
        model = self.path("m.safetensors")
        words = ["--tune", "head", "--pooling", "mean", "--batch-size", "40", "--epsilon", "8", "--epochs", "1"]
        self.tune(*words, "--save", model)
        told = self.command("export", "--model", model, "--out", self.path("whole"))
        self.assertIn("its classifier takes --pooling mean", told)

    def test_wrong_words_are_refused_by_name(self):
        data = ["--data", self.table(), "--epsilon", "3"]
        for words, part in (
                ([*data], "--label-column: which column"),
                ([*data, "--label-column", "stars"], "has no column stars; it has who, label, text"),
                ([*data, "--label-column", "label", "--tune", "lora:x"], "lora:x"),
                ([*data, "--label-column", "label", "--unit", "user"], "--unit user: needs --user-column"),
                ([*data, "--label-column", "label", "--unit", "line"], "--unit: a line of"),
                ([*data, "--label-column", "label", "--context", "1"], "--context: 1 is not from 2")):
            with self.subTest(words=words):
                self.refused(re.escape(part), "train", "--init", self.bert, *words)

    def test_the_options_of_tuning_are_in_the_help_and_need_a_model(self):
        told = self.command("train", "--help")
        self.assertIn("Usage: sotto-text train [OPTIONS]", told)
        self.assertIn("--label-column NAME", told)
        self.refused("--tune: has no effect on this model", "train", "--tune", "all")


class Writer(Tuned):
    def test_a_language_model_is_tuned_and_writes(self):
        text = self.path("text.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write("abcabcabc\n" * 100)
        model = self.path("m.safetensors")
        facts = self.facts("--init", self.gpt2, "--data", text, "--unit", "line", "--tune", "all", "--context", "16",
                           "--no-privacy", "--epochs", "20", "--batch-size", "20", "--lr", "0.02", "--save", model)
        self.assertLess(facts["test_nats_per_token"], 0.5)
        out = self.command("generate", "--model", model, "--prompt", "abca", "--length", "5", "--temperature", "0")
        self.assertTrue(out.startswith("abcabcabc"), out)

    def test_a_published_model_writes(self):
        words = ["--model", self.gpt2, "--prompt", "ab", "--length", "8"]
        once = self.command("generate", *words, "--seed", "3", "--top-k", "20")
        self.assertEqual(once, self.command("generate", *words, "--seed", "3", "--top-k", "20"))

    def test_a_prompt_is_read_and_not_learned(self):
        with open(self.path("pairs.tsv"), "w", encoding="utf-8") as file:
            file.write("ask\ttext\n" + "xy\tabab\n" * 60)
        facts = self.facts("--init", self.gpt2, "--data", self.path("pairs.tsv"), "--prompt-column", "ask",
                           "--tune", "lora:4", "--context", "16", "--no-privacy", "--epochs", "5",
                           "--batch-size", "20", "--lr", "0.02")
        self.assertLess(facts["test_nats_per_token"], 5)
        self.refused("no row has a token to learn among its 2", "train", "--init", self.gpt2, "--data", self.path("pairs.tsv"),
                     "--prompt-column", "ask", "--tune", "lora:4", "--context", "2", "--no-privacy")


class Vectors(Tuned):
    def test_vectors_of_texts_are_a_table_to_train_on(self):
        vectors, schema = self.path("vectors.csv"), self.path("vectors.json")
        made = run_program([EMBED, "--init", self.bert, "--data", self.table(), "--label-column", "label",
                            "--context", "16", "--out", vectors, "--schema", schema])
        self.assertEqual((0, ""), (made.returncode, made.stderr))
        self.assertIn("as SECRET as the data", made.stdout)
        self.assertEqual(0o600, os.stat(vectors).st_mode & 0o777)
        with open(vectors, encoding="utf-8") as file:
            row = next(csv.DictReader(file))
        self.assertAlmostEqual(1, sum(float(row[f"v{k}"]) ** 2 for k in range(1, 17)), places=4)
        trained = run_program([TABULAR, "train", "--data", vectors, "--schema", schema, "--no-privacy",
                               "--epochs", "60", "--batch-size", "40"])
        self.assertEqual((0, ""), (trained.returncode, trained.stderr))
        self.assertIn("test accuracy", trained.stdout)

    def vectors(self, *words):
        out = self.path("pooled.csv")
        made = run_program([EMBED, "--init", self.bert, "--data", self.table(rows=3), "--context", "8", "--out", out, *words])
        self.assertEqual((0, ""), (made.returncode, made.stderr))
        with open(out, encoding="utf-8") as file:
            return [[float(value) for value in row] for row in list(csv.reader(file))[1:]]

    def test_parts_of_a_vector_are_joined(self):
        parts = [self.vectors("--pooling", words) for words in ("mean", "1:1", "1:2")]
        both = self.vectors("--pooling", "mean:2,1:1")
        for row, whole in enumerate(both):
            wanted = [value / 2 ** 0.5 for value in parts[0][row] + parts[1][row]]
            self.assertLess(max(abs(a - b) for a, b in zip(whole, wanted, strict=True)), 1e-5)
        self.assertEqual(self.vectors("--pooling", "1"), parts[2])  # behind all blocks
        self.assertNotEqual(parts[1], parts[2])
        self.assertEqual([0.0] * 16, self.vectors("--pooling", "7")[0])  # texts of six tokens
        for words, part in (("median", "'median' is neither mean nor a number from 0"), ("mean:0", "'0' is neither"),
                            ("mean,", "'mean,' lacks a part"), ("8", "position 8 of 8 tokens"), ("mean:3", "3 blocks")):
            refused = run_program([EMBED, "--init", self.bert, "--data", self.table(rows=3), "--context", "8",
                                   "--out", self.path("no.csv"), "--pooling", words])
            self.assertEqual(2, refused.returncode)
            self.assertIn(part, refused.stderr)


if __name__ == "__main__":
    TEXT, EMBED, TABULAR = take_programs(3)
    TrainingCase.program = TEXT
    unittest.main()
