#!/usr/bin/env python3
"""Runs the sample `text` as people do: training, evaluation, prediction, generation, and refusals.

Usage: text_test.py PATH_OF_TEXT [unittest options]
"""

import csv
import gzip
import json
import os
import re
import unittest
import xml.etree.ElementTree

from programs import TrainingCase, WithCommands, read_tensors, take_programs

ONE = ["--threads", "1"]
MADE_UP = ["--train-size", "300", "--test-size", "100", "--batch-size", "50", "--hidden", "16"]
# Two languages that a network tells at once: their letters differ.
WORDS = {"low": ["abc", "cab", "bac", "aabb", "ca"], "high": ["xyz", "zyx", "yxx", "zzy", "xz"]}
FEW_STEPS = ["--noise-multiplier", "2", "--steps", "3", "--batch-size", "20", "--delta", "1e-3",
             "--hidden", "8"]


class InFolder(TrainingCase):
    def write(self, name, text, opener=open):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with opener(self.path(name), "wt", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def languages(self, name="languages", lines=100):
        for language, words in WORDS.items():
            self.write(f"{name}/{language}.txt",
                       "".join(words[k % len(words)] + "\n" for k in range(lines)))
        return self.path(name)


class Training(InFolder):
    def test_sentences_made_up_by_the_program_are_trained_on_privately(self):
        page = self.path("run.html")
        out = self.train(*MADE_UP, "--epsilon", "8", "--epochs", "2", "--report", page)
        self.assertIn("300 training and 100 test samples, sentences made up by the program", out)
        self.assertRegex(out.splitlines()[-1],
                         r"^test accuracy \d+\.\d\d %   \(ε = \S+, δ = 1e-05\)   2 epochs in ")
        with open(page, encoding="utf-8") as file:
            self.assertIn("Results on the test data", file.read())

    def test_a_result_on_rows_that_were_held_out_is_said_to_be_not_private(self):
        out = self.train(*MADE_UP, "--epsilon", "8", "--epochs", "1", "--validation", "0.3")
        self.assertRegex(out, r"(?m)^epoch .*  validation accuracy \d+\.\d\d % \(NOT PRIVATE\)  ε = ")
        self.assertRegex(out.splitlines()[-1], r"^validation accuracy \d+\.\d\d %, which is NOT PRIVATE   \(ε = ")

    def test_every_network_tells_two_languages(self):
        for network in ("gru", "lstm", "transformer"):
            facts = self.facts("--data", self.languages(), "--model", network, "--no-privacy",
                               "--epochs", "10", "--batch-size", "20", "--hidden", "16", "--context", "8")
            self.assertEqual(1, facts["test_accuracy"], network)
            self.assertEqual(["high", "low"], facts["confusion"]["classes"])
            self.assertEqual(40, sum(facts["confusion"]["counts"]))
            self.assertEqual(1, float(facts["results"]["accuracy"]))

    def test_every_network_learns_what_follows(self):
        data = self.write("text.txt", "abcabcabc\n" * 100)
        for network in ("gru", "lstm", "transformer"):
            page = self.path(network + ".html")
            facts = self.facts("--task", "generate", "--data", data, "--model", network,
                               "--no-privacy", "--epochs", "15", "--batch-size", "20", "--hidden", "16",
                               "--context", "12", "--alphabet", "abc", "--report", page)
            self.assertLess(facts["test_nats_per_character"], 0.2, network)
            self.assertIn("abcabcabc\n", facts["generated_text"])
            with open(page, encoding="utf-8") as file:
                text = file.read()
            self.assertIn("Text that the model writes", text)
            xml.etree.ElementTree.fromstring(text)

    def test_a_trigram_model_is_counted_in_one_private_step(self):
        data = self.write("text.txt", "abcabcabc\n" * 1000)
        model, page = self.path("m.safetensors"), self.path("run.html")
        common = ["--task", "generate", "--data", data, "--alphabet", "abc", "--context", "12"]
        out = self.train(*common, "--model", "trigram", "--epsilon", "8", "--delta", "1e-4", "--save", model,
                         "--report", page, "--compare")
        self.assertIn("poisson batches of 800 samples on average, 1 steps", out)
        private, ordinary = (float(re.search(pattern + r"test nats per character ([\d.]+)", out, re.M)[1])
                             for pattern in ("^", "^without privacy: "))
        self.assertLess(private, 0.3)
        self.assertLess(ordinary, private + 0.005)  # little noise may even help
        _, metadata = read_tensors(model)
        privacy = json.loads(metadata["sotto.privacy"])
        self.assertEqual(1, privacy["releases"])
        self.assertLessEqual(privacy["epsilon"], 8)
        with open(page, encoding="utf-8") as file:
            self.assertIn("Text that the model writes", file.read())
        done = self.call("generate", "--model", model, "--prompt", "ab", "--length", "8", "--temperature", "0")
        self.assertEqual((0, "abcabcabca\n"), (done.returncode, done.stdout))
        for option, value in (("--lr", "1"), ("--steps", "2"), ("--hidden", "8")):
            self.refused(f"{option}: has no effect on this model", "train", *common, "--model", "trigram",
                         option, value)
        self.refused("--model: a trigram model is for", "train", "--model", "trigram")
        self.train(*common, "--resume", model)

    def test_the_classes_of_a_language_model_are_its_symbols(self):
        """An untrained model is about as good as guessing among the alphabet and the end."""
        data = self.write("text.txt", "abcabcabc\n" * 100)
        facts = self.facts("--task", "generate", "--data", data, "--alphabet", "abc", *FEW_STEPS,
                           "--lr", "1e-6")
        self.assertAlmostEqual(1.386, facts["test_nats_per_character"], delta=0.3)

    def test_every_nth_unit_is_the_test_set_whatever_the_classes_are(self):
        facts = self.facts("--data", self.languages(lines=103), "--test-every", "5", *FEW_STEPS)
        settings = {entry["name"]: entry["value"] for entry in facts["settings"]}
        self.assertEqual(("165", "41"), (settings["train size"], settings["test size"]))
        self.assertEqual([20, 21], [sum(facts["confusion"]["counts"][k:k + 2]) for k in (0, 2)])
        self.assertIn("The names of the classes, and their number: they must be public", facts["privacy"]["not_covered"])

    def test_the_rows_of_a_split_unit_belong_together(self):
        data = self.write("text.txt", "\n\n".join(["abcab\ncabca"] * 60) + "\n")
        common = ["--task", "generate", "--data", data, "--unit", "paragraph", "--context", "4",
                  "--test-every", "3", *FEW_STEPS]
        facts = self.facts(*common, "--long-units", "split")
        settings = {entry["name"]: entry["value"] for entry in facts["settings"]}
        self.assertEqual("one paragraph of the text", facts["privacy"]["unit"])
        self.assertEqual("40", settings["train size"])      # units
        self.assertEqual("60", settings["test size"])       # rows: three of each unit
        facts = self.facts(*common)
        settings = {entry["name"]: entry["value"] for entry in facts["settings"]}
        self.assertEqual(("40", "20"), (settings["train size"], settings["test size"]))

    def test_a_stopped_training_goes_on(self):
        data = ["--data", self.languages()]
        self.train(*data, *FEW_STEPS, "--save", self.path("m"))
        self.refused("context is 9", "train", *data, "--context", "9", "--resume", self.path("m"),
                     "--steps", "5")
        out = self.train(*data, "--resume", self.path("m"), "--steps", "5")
        self.assertIn("resumed at step 3", out)
        _, metadata = read_tensors(self.path("m"))
        self.assertEqual(5, json.loads(metadata["sotto.privacy"])["releases"])

    def test_presets_are_named_and_run(self):
        for preset, task in (("names", ["--data", self.languages()]),
                             ("speeches", ["--data", self.write("t.txt", "ab\n\n" * 40)]),
                             ("speeches-transformer", ["--data", self.path("t.txt")])):
            out = self.train("--preset", preset, *task, "--noise-multiplier", "2", "--steps", "1",
                             "--batch-size", "20", "--hidden", "8", "--delta", "1e-3")
            self.assertIn(f"preset {preset}, but ", out)


class Classifier(InFolder):
    def setUp(self):
        super().setUp()
        self.data, self.model = self.languages(), self.path("m.safetensors")
        self.train("--data", self.data, "--no-privacy", "--epochs", "5", "--batch-size", "20",
                   "--hidden", "16", "--context", "8", "--quiet", "--save", self.model)

    def predict(self, data):
        out = self.path("p.csv")
        done = self.call("predict", "--model", self.model, "--data", data, "--out", out)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        with open(out, encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_evaluate_and_predict_agree(self):
        result = self.path("e.json")
        done = self.call("evaluate", "--model", self.model, "--data", self.data, "--json", result)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        with open(result, encoding="utf-8") as file:
            facts = json.load(file)
        right = 0
        for language in WORDS:
            lines = self.predict(os.path.join(self.data, language + ".txt"))
            self.assertEqual([str(k) for k in range(1, 101)], [line["unit"] for line in lines])
            right += sum(line["class"] == language for line in lines)
            for line in lines:
                self.assertAlmostEqual(1, float(line["p(low)"]) + float(line["p(high)"]), 5)
        self.assertAlmostEqual(facts["accuracy"], right / 200, 4)
        self.assertGreater(facts["accuracy"], 0.95)
        self.assertEqual(right, facts["confusion"][0] + facts["confusion"][3])

    def test_lines_beside_one_do_not_change_its_prediction(self):
        alone = self.predict(self.write("new.txt", "abcab\n"))
        beside = self.predict(self.write("new.txt.gz", "xyzxyzxy\n\nabcab\nz\n", gzip.open))
        self.assertEqual(3, len(beside))
        self.assertEqual({**alone[0], "unit": "2"}, beside[1])

    def test_a_new_class_and_bytes_that_are_no_text_are_refused(self):
        other = self.languages("others")
        self.write("others/third.txt", "abc\n")
        self.refused("third", "evaluate", "--model", self.model, "--data", other)
        with open(self.path("bytes"), "wb") as file:
            file.write(b"ab\nc\xff\n")
        self.refused("bytes: byte 0xff at offset 4 is not UTF-8", "predict", "--model", self.model,
                     "--data", self.path("bytes"), "--out", self.path("p.csv"))
        self.refused("has no text", "predict", "--model", self.model, "--data",
                     self.write("none.txt", "\n"), "--out", self.path("p.csv"))
        self.refused("does not write", "generate", "--model", self.model)
        self.refused("safetensors|no tensors", "evaluate", "--model", self.path("bytes"), "--data", other)
        self.refused("--out: is required", "predict", "--model", self.model, "--data", other)


class Writer(InFolder):
    def setUp(self):
        super().setUp()
        self.data, self.model = self.write("text.txt", "abcabcabc\n" * 100), self.path("m")
        self.train("--task", "generate", "--data", self.data, "--no-privacy", "--epochs", "15",
                   "--batch-size", "20", "--hidden", "16", "--context", "12", "--alphabet", "abc",
                   "--quiet", "--save", self.model)

    def write_text(self, *arguments):
        done = self.call("generate", "--model", self.model, *arguments)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout

    def test_the_model_continues_a_prompt(self):
        out = self.write_text("--prompt", "abca", "--length", "16", "--temperature", "0")
        self.assertEqual(len("abca") + 16 + 1, len(out))
        self.assertRegex(out, "^abcabcab[abc\n]*\n$")

    def test_a_text_is_a_function_of_the_seed(self):
        texts = [self.write_text("--length", "60", "--temperature", "3", "--seed", seed)
                 for seed in ("1", "1", "2")]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_evaluate_tells_nats_and_perplexity(self):
        result = self.path("e.json")
        done = self.call("evaluate", "--model", self.model, "--data", self.data, "--json", result)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        with open(result, encoding="utf-8") as file:
            facts = json.load(file)
        self.assertLess(facts["nats per character"], 0.2)
        self.assertGreater(facts["perplexity"], 1)

    def test_what_cannot_be_written_is_refused(self):
        self.refused("--prompt: .*d at byte 2", "generate", "--model", self.model, "--prompt", "abd")
        self.refused("--length: 0", "generate", "--model", self.model, "--length", "0")
        self.refused("--temperature: -1", "generate", "--model", self.model, "--temperature", "-1")
        self.refused("knows no classes", "predict", "--model", self.model, "--data", self.data, "--out",
                     self.path("p.csv"))
        self.refused(r"text\.txt: line 2: the vocabulary lacks U\+0064", "evaluate", "--model",
                     self.model, "--data", self.write("text.txt", "abc\nad\n"))


class Sentences(InFolder):
    def test_sentences_are_written_as_a_file_for_each_class(self):
        folder = self.path("sentences")
        done = self.call("sentences", "--out", folder, "--count", "90")
        self.assertEqual((0, f"90 sentences in {folder}\n"), (done.returncode, done.stdout))
        self.assertEqual(["garden.txt", "harbor.txt", "kitchen.txt"], sorted(os.listdir(folder)))
        facts = self.facts("--data", folder, *FEW_STEPS)
        settings = {entry["name"]: entry["value"] for entry in facts["settings"]}
        self.assertEqual(("72", "18"), (settings["train size"], settings["test size"]))
        self.refused("exists already", "sentences", "--out", folder)

    def test_sentences_are_written_as_a_table_of_persons(self):
        table = self.path("sentences.tsv")
        done = self.call("sentences", "--out", table, "--count", "8", "--first", "4")
        self.assertEqual((0, f"8 sentences in {table}\n"), (done.returncode, done.stdout))
        with open(table, encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
        self.assertEqual(["person", "place", "text"], rows[0])
        self.assertEqual(["person1"] * 4 + ["person2"] * 4, [row[0] for row in rows[1:]])
        self.assertTrue(all(row[1] in ("garden", "harbor", "kitchen") for row in rows[1:]), rows)

    def test_sentences_that_cannot_be_written_are_refused(self):
        self.refused("--count: 0", "sentences", "--out", self.path("none"), "--count", "0")


class Refusals(WithCommands, InFolder):
    """Nothing is spent or written for settings and text that cannot be trained on."""

    commands = ("train", "evaluate", "predict", "generate", "sentences")

    def refuse(self, message, *arguments):
        data = [] if "--data" in arguments else ["--data", self.languages()]
        self.refused(message, "train", *data, "--epsilon", "2", "--delta", "1e-3",
                     "--batch-size", "20", *ONE, *arguments, "--save", self.path("m"))

    def test_data_that_are_no_classes(self):
        self.refuse("nowhere", "--data", self.path("nowhere"))
        os.symlink("loop", self.path("loop"))
        for task in ("classify", "generate"):
            self.refuse("loop: Too many levels of symbolic links", "--task", task, "--data", self.path("loop"))
        self.write("one/a.txt", "abc\n" * 100)
        self.refuse("has one class, a", "--data", self.path("one"))
        self.write("empty/a.txt", "\n")
        self.write("empty/b.txt", "\n")
        self.refuse("has no text", "--data", self.path("empty"))

    def test_characters_that_the_alphabet_lacks(self):
        self.refuse(r"high\.txt: line 1: the vocabulary lacks U\+0078", "--alphabet", "abc")
        self.refuse("--alphabet: .*twice", "--alphabet", "aba")

    def test_one_unit_owns_everything(self):
        self.refuse("belong to one unit", "--task", "generate", "--unit", "file", "--long-units",
                    "split", "--data", self.write("text.txt", "abc\n" * 100), "--test",
                    self.write("test.txt", "abc\n"))

    def test_options_that_do_not_fit(self):
        for option, value in (("--hidden", "0"), ("--layers", "100"), ("--embedding", "0"),
                              ("--context", "1"), ("--test-fraction", "1"), ("--test-every", "1")):
            self.refuse(re.escape(option), option, value)
        self.refuse("--heads: 5 do not divide", "--model", "transformer", "--heads", "5")
        self.refuse("--bidirectional: ", "--model", "transformer", "--bidirectional")
        self.refuse("--bidirectional: ", "--task", "generate", "--bidirectional")
        self.refuse("--other-characters: needs an --alphabet", "--other-characters")
        self.refused("--unit: a file needs --data", "train", "--unit", "file")
        self.refused("--test-every: needs --data", "train", "--test-every", "5")
        self.refused("--test: needs --data", "train", "--test", self.languages())
        self.refuse("delta", "--delta", "0.5")


if __name__ == "__main__":
    (TrainingCase.program,) = take_programs(1)
    unittest.main()
