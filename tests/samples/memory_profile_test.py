#!/usr/bin/env python3
"""Runs the sample `memory_profile` as users do.

Usage: memory_profile_test.py PATH_OF_MEMORY_PROFILE [unittest options]
"""

import json
import xml.dom.minidom

from mnist_runs import ALONE, Case, main, run

KINDS = {"parameters", "gradients", "optimizer state", "activations", "saved factors", "per-sample gradients",
         "workspace", "data", "other"}


class MemoryProfile(Case):
    def found(self, *arguments):
        done = run(*ALONE, *arguments, "--json", self.path("found.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("found.json"), encoding="utf-8") as file:
            return json.load(file)

    def refuse(self, status, fact, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(fact, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_bytes_by_kind_are_those_of_the_model(self):
        for privacy in ([], ["--no-privacy"]):
            found = self.found("--model", "ffnn", "--batch-size", "32", "--optimizer", "adam", *privacy)
            parameters = 4 * found["parameters"]  # f32, with little lost to size classes
            # Weights of 104 x 50 and 50 x 2, and their biases.
            self.assertEqual(found["parameters"], 104 * 50 + 50 + 50 * 2 + 2)
            self.assertTrue(parameters <= found["kinds"]["parameters"] <= 1.13 * parameters)
            state = found["kinds"]["optimizer state"]
            self.assertTrue(2 * parameters <= state <= 2 * 1.13 * parameters)
            self.assertEqual(sum(found["kinds"].values()), found["peak"])
            self.assertLessEqual(set(found["kinds"]), KINDS)
            totals = map(sum, zip(*(band["bytes"] for band in found["curve"]["bands"])))
            self.assertEqual(max(totals), found["peak"])
            names = {phase["name"] for phase in found["phases"]}
            # A private update needs no memory of its own.
            self.assertLessEqual({"forward", "backward"} | ({"update"} if privacy else set()), names)
            self.assertEqual("clip" in names, not privacy)

    def test_ghost_clipping_keeps_no_backward_factors(self):
        one = self.found("--model", "ffnn", "--batch-size", "64")
        two = self.found("--model", "ffnn", "--batch-size", "64", "--clipping", "ghost")
        kept = [band for band in one["curve"]["bands"] if band["kind"] == "saved factors"]
        self.assertTrue(kept)
        self.assertEqual([b for b in two["curve"]["bands"] if b["kind"] == "saved factors"], [])

    def test_the_page_is_well_formed_and_names_owners(self):
        page = self.path("page.html")
        done = run("--batch-size", "16", "--physical-batch", "8", "--clip-groups", "layers", "--report",
                   page)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("peak in clip", done.stdout)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        document = xml.dom.minidom.parseString(text.replace("<!DOCTYPE html>", ""))
        titles = [t.firstChild.data for t in document.getElementsByTagName("title")]
        self.assertTrue(any("activations: conv" in t and " in conv1, " in t for t in titles))
        self.assertNotIn("http", text)

    def test_a_limit_that_is_too_low_says_who_holds_what(self):
        # Not enough for a single sample.
        self.refuse(1, "limit 400000", *ALONE, "--batch-size", "16", "--hard-limit", "400kB")
        self.refuse(1, "bytes: parameters", *ALONE, "--batch-size", "16", "--hard-limit", "400kB")
        self.refuse(1, "would lower them", *ALONE, "--batch-size", "16", "--hard-limit", "400kB")
        self.assertEqual(run("--batch-size", "16", "--hard-limit", "1GB").returncode, 0)

    def test_a_memory_limit_is_kept_by_smaller_physical_batches(self):
        free = self.found("--model", "mnist", "--batch-size", "64", "--no-privacy")
        limit = int(0.7 * free["peak"])
        limited = self.found("--model", "mnist", "--batch-size", "64", "--no-privacy",
                             "--memory-limit", f"{limit}B")
        self.assertLessEqual(limited["peak"], limit)

    def test_narrow_activations_take_half(self):
        wide = self.found("--model", "mnist", "--batch-size", "64", "--no-privacy")
        narrow = self.found("--model", "mnist", "--batch-size", "64", "--no-privacy", "--precision",
                            "bf16")
        self.assertLess(narrow["kinds"]["activations"], 0.75 * wide["kinds"]["activations"])

    def test_wrong_arguments_are_refused(self):
        self.refuse(2, "no model is called nosuch; known models are", "--model", "nosuch")
        self.refuse(2, "--batch-size", "--batch-size", "1")
        self.refuse(2, "--no-privacy and --clipping", "--no-privacy", "--clipping", "ghost")
        self.refuse(2, "--clipping", "--clipping", "three")
        self.refuse(2, "much", "--hard-limit", "much")
        self.refuse(2, "there is no folder", "--report", self.path("nowhere/page.html"))

    def test_the_help_lists_the_models(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("resnet50", done.stdout)


if __name__ == "__main__":
    main()
