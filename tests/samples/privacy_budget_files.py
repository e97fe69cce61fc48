#!/usr/bin/env python3
"""Gives the sample `privacy_budget` ledgers, has it write pages, and gives it wrong arguments.

Usage: privacy_budget_files.py PATH_OF_PRIVACY_BUDGET PATH_OF_WRITE_LEDGERS [unittest options]
"""

import os
import re
import xml.etree.ElementTree

from privacy_budget_runs import DELTA, DIGITS, PLAIN, Case, main, run, start_writing_ledgers


class Ledgers(Case):
    def setUp(self):
        super().setUp()
        self.writer = start_writing_ledgers(self.folder)

    def tearDown(self):
        self.writer.communicate("")

    def ledger(self, name, *arguments):
        return self.ask("spent", *DELTA, "--ledger", self.path(name), *arguments)

    def test_a_ledger_is_what_it_lists(self):
        found = self.ledger("plain.ledger")
        self.assertEqual(found["releases"][0]["count"], 1000)
        self.assertAlmostEqual(found["answers"][0]["epsilon"], self.spent(*PLAIN)["epsilon"])
        self.assertTrue(found["private"])
        phases = self.ledger("phases.ledger")
        self.assertEqual([kind["count"] for kind in phases["releases"]], [150, 2])
        described = self.spent("--sampling-rate", "0.01", "--noise-multiplier", "1.1", "--phase",
                               "steps=150", "--phase",
                               "sampling-rate=1,noise-multiplier=4,steps=2")
        self.assertAlmostEqual(phases["answers"][0]["epsilon"], described["epsilon"], places=6)
        self.assertEqual(phases["population"], 100000)
        self.assertTrue(any("is not below 1/100000" in note for note in phases["notes"]))
        self.assertNotIn("population", found)

    def test_settings_that_followed_releases_cost_more(self):
        planned, found = self.ledger("phases.ledger"), self.ledger("adaptive.ledger")
        self.assertEqual((planned["adaptive"], found["adaptive"]), (False, True))
        self.assertGreater(found["answers"][0]["epsilon"], planned["answers"][0]["epsilon"])
        self.assertEqual(found["accountant"], "rdp")
        self.assertTrue(any(note.startswith("adaptive: settings") for note in found["notes"]))
        self.refuse(2, "only rdp has a proof", "spent", *DELTA, "--ledger",
                    self.path("adaptive.ledger"), "--accountant", "pld")
        self.refuse(2, "--epsilon: the ledger's settings", "spent", "--epsilon", "1", "--ledger",
                    self.path("adaptive.ledger"))

    def test_the_part_of_a_plan_that_came_out_costs_the_plan(self):
        planned, found = self.ledger("phases.ledger"), self.ledger("chosen.ledger")
        self.assertEqual([kind["count"] for kind in found["releases"]], [1])
        self.assertEqual(found["answers"], planned["answers"])
        self.assertTrue(any("the whole plan" in note for note in found["notes"]))
        self.assertFalse(any("the whole plan" in note for note in planned["notes"]))

    def test_a_private_selection_costs_more_than_a_run_and_less_than_the_sum(self):
        found = self.ledger("selection.ledger")
        one, ten = (self.spent(*PLAIN[:-1], steps)["epsilon"] for steps in ("1000", "10000"))
        self.assertEqual(found["releases"][0]["count"], 1000)
        self.assertAlmostEqual(found["selection_mean_runs"], 10)
        self.assertTrue(one < found["answers"][0]["epsilon"] < ten)
        self.assertTrue(any("10 in the mean" in note for note in found["notes"]))
        at = self.ask("spent", "--epsilon", str(found["answers"][0]["epsilon"]), "--ledger",
                      self.path("selection.ledger"))
        self.assertAlmostEqual(at["answers"][0]["delta"], 1e-5, places=7)
        more = self.ledger("selection_and_more.ledger")
        self.assertTrue(more["adaptive"])
        self.assertGreater(more["answers"][0]["epsilon"], found["answers"][0]["epsilon"])

    def test_epochs_of_a_ledger_are_charged_once(self):
        found = self.ledger("passes.ledger", "--report", self.path("page.html"))
        self.assertEqual(found["releases"][0]["count"], 10)
        self.assertEqual(found["accountant"], "rdp")
        described = self.spent("--sampling", "balls_and_bins", "--batches-per-epoch", "4", "--steps", "10",
                               "--noise-multiplier", "3")
        self.assertAlmostEqual(found["answers"][0]["epsilon"], described["epsilon"], places=9)

    def test_a_ledger_can_be_asked_about_other_neighbours(self):
        more = self.ledger("plain.ledger", "--relation", "replace_one")
        less = self.ledger("plain.ledger")
        self.assertEqual((more["relation"], less["relation"]),
                         ("replace_one", "add_or_remove_one"))
        self.assertGreater(more["answers"][0]["epsilon"], less["answers"][0]["epsilon"])

    def test_an_empty_ledger_has_spent_nothing(self):
        found = self.ledger("empty.ledger")
        self.assertEqual((found["releases"], found["answers"][0]["epsilon"]), ([], 0))
        self.succeed("spent", *DELTA, "--ledger", self.path("empty.ledger"), "--report",
                     self.path("page.html"))

    def test_the_ledger_of_a_running_training_is_read_and_its_reservation_counts(self):
        found = self.ledger("held.ledger")
        self.assertGreaterEqual(found["releases"][0]["count"], 5)
        self.assertLessEqual(found["releases"][0]["count"], 64)
        self.assertIsNone(self.writer.poll())

    def test_reading_changes_nothing(self):
        with open(self.path("held.ledger"), "rb") as file:
            before = file.read()
        os.chmod(self.path("held.ledger"), 0o400)
        self.ledger("held.ledger")
        with open(self.path("held.ledger"), "rb") as file:
            self.assertEqual(file.read(), before)

    def test_a_training_that_is_not_private_says_so_and_why(self):
        found = self.ask("spent", *DELTA, "--epsilon", "1", "--ledger",
                         self.path("seeded.ledger"))
        self.assertFalse(found["private"])
        self.assertEqual(found["reasons"], ["seeded <noise>"])
        self.assertEqual(found["answers"][0]["epsilon"], "infinity")
        self.assertEqual(found["answers"][1]["delta"], 1)
        page = self.path("page.html")
        text = self.succeed("spent", *DELTA, "--ledger", self.path("seeded.ledger"), "--report",
                            page)
        self.assertTrue(text.startswith("NOT PRIVATE: seeded <noise>\n"))
        with open(page, encoding="utf-8") as file:
            self.assertIn("Not private.", file.read())

    def test_releases_without_noise_are_not_private(self):
        found = self.ledger("noiseless.ledger")
        self.assertFalse(found["private"])
        self.assertEqual(found["answers"][0]["epsilon"], "infinity")

    def test_a_damaged_or_missing_ledger_is_refused_and_a_cut_one_is_not(self):
        with open(self.path("plain.ledger"), "rb") as file:
            whole = file.read()
        damaged = self.path("damaged.ledger")

        def write(content):
            with open(damaged, "wb") as file:
                file.write(content)
            return ["spent", *DELTA, "--ledger", damaged]

        self.refuse(1, "damaged.ledger:", *write(whole.replace(b'"poisson"', b'"poissen"', 1)))
        lines = whole.splitlines(keepends=True)
        self.refuse(1, "damaged.ledger:", *write(b"".join(lines[1:])))
        self.refuse(1, "damaged.ledger:", *write(b""))
        self.refuse(1, "absent.ledger", "spent", *DELTA, "--ledger", self.path("absent.ledger"))
        self.refuse(1, "--ledger", "spent", *DELTA, "--ledger", self.folder)
        self.succeed(*write(whole[:-10]))

    def test_a_ledger_goes_with_no_description(self):
        for option, value in (("--noise-multiplier", "1"), ("--steps", "3"), ("--batch-size", "3"),
                              ("--sampling", "poisson"), ("--epochs", "1"),
                              ("--phase", "steps=3")):
            self.refuse(2, option, "spent", *DELTA, "--ledger", self.path("plain.ledger"), option,
                        value)
        self.refuse(2, "--report", "spent", *DELTA, "--ledger", self.path("plain.ledger"), "--report",
                    self.path("plain.ledger"))


class Pages(Case):
    COMMANDS = (
        ("spent", *DELTA, *PLAIN),
        ("spent", *DELTA, "--sampling-rate", "0.01", "--steps", "100", "--phase",
         "noise-multiplier=1", "--phase", "noise-multiplier=2"),
        ("noise", "--epsilon", "3", *DELTA, "--sampling-rate", "0.01", "--steps", "100"),
        ("steps", "--epsilon", "1", *DELTA, "--sampling-rate", "0.01", "--noise-multiplier", "2"),
        ("batch", "--epsilon", "1", *DELTA, "--steps", "100", "--noise-multiplier", "2"),
        ("compare", *DELTA, *PLAIN, "--relation", "add_or_remove_one"),
    )

    def test_a_page_is_well_formed_needs_nothing_else_and_has_three_plots_at_least(self):
        for command in self.COMMANDS:
            with self.subTest(command=command):
                path = self.path("page.html")
                text = self.succeed(*command, "--report", path)
                with open(path, encoding="utf-8") as file:
                    page = file.read()
                self.assertTrue(page.startswith("<!DOCTYPE html>\n"))
                root = xml.etree.ElementTree.fromstring(page.split("\n", 1)[1])
                tags = [element.tag for element in root.iter()]
                plots = [e for e in root.iter("svg") if e.get("role") == "img"]
                self.assertEqual(len(plots), 3)
                self.assertGreater(tags.count("circle"), 20)
                for foreign in ("script", "link", "img", "iframe", "object"):
                    self.assertNotIn(foreign, tags)
                for reference in ("http", "url(", "@import", "src=", "href="):
                    self.assertNotIn(reference, page)
                for broken in ("nan", "inf"):
                    self.assertNotRegex(page, rf"\b{broken}\b")
                self.assertEqual(os.listdir(self.folder), ["page.html"])
                for cell in re.findall(r"\d+\.\d+", text):
                    self.assertIn(cell, page)

    def test_curves_end_at_the_answer(self):
        path = self.path("page.html")
        epsilon = self.succeed("spent", *DELTA, *PLAIN, "--report", path).splitlines()[-1].split()[1]
        with open(path, encoding="utf-8") as file:
            page = file.read()
        for x in ("1,000", "10⁻⁵", "1.1"):
            self.assertIn(f"<title>pld, {x}: {epsilon}</title>", page)

    def test_the_curve_of_a_ledger_goes_through_its_phases(self):
        writer = start_writing_ledgers(self.folder)
        path = self.path("page.html")
        self.succeed("spent", *DELTA, "--ledger", self.path("phases.ledger"), "--report", path)
        writer.communicate("")
        with open(path, encoding="utf-8") as file:
            page = file.read()
        first, *_, last = re.findall(r"<title>pld, (\d+): (\S+)</title>", page)[:12]
        for steps, epsilon in (first, last):
            text = self.succeed("spent", *DELTA, "--sampling-rate", "0.01", "--noise-multiplier",
                                "1.1", "--phase", f"steps={min(int(steps), 150)}",
                                *(["--phase", "sampling-rate=1,noise-multiplier=4,steps=2"]
                                  if int(steps) == 152 else []))
            self.assertEqual(text.splitlines()[-1].split()[1], epsilon)
        self.assertEqual((first[0], last[0]), ("12", "152"))

    def test_an_old_page_stays_when_the_new_one_fails(self):
        path = self.path("page.html")
        with open(path, "w", encoding="utf-8") as file:
            file.write("old")
        self.refuse(2, "--steps", "spent", *DELTA, *PLAIN[:4], "--report", path)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(file.read(), "old")

    def test_json_and_a_page_go_together(self):
        found = self.ask("spent", *DELTA, *PLAIN, "--report", self.path("page.html"))
        self.assertEqual(found["command"], "spent")
        self.assertTrue(os.path.exists(self.path("page.html")))


class WrongArguments(Case):
    def test_each_is_refused_in_one_line_that_names_it(self):
        rate = ["--sampling-rate", "0.01"]
        steps = ["--steps", "10"]
        noise = ["--noise-multiplier", "1"]
        for fact, arguments in (
            ("command", []),
            ("frobnicate", ["frobnicate"]),
            ("--delta", ["spent"]),
            ("--delta", ["spent", *PLAIN, "--delta", "0"]),
            ("--delta", ["spent", *PLAIN, "--delta", "1"]),
            ("--delta", ["spent", *PLAIN, "--delta", "nan"]),
            ("--delta", ["spent", *PLAIN, "--delta", "tiny"]),
            ("--delta", ["noise", "--epsilon", "1", *rate, *steps]),
            ("--delta", ["noise", "--epsilon", "1", "--delta", "1e-5", "1e-6", *rate, *steps]),
            ("--epsilon", ["spent", *PLAIN, "--epsilon", "-1"]),
            ("--epsilon", ["spent", *PLAIN, "--epsilon", "inf"]),
            ("--epsilon", ["noise", *DELTA, *rate, *steps]),
            ("--epsilon", ["noise", *DELTA, "--epsilon", "0", *rate, *steps]),
            ("--epsilon", ["noise", "--delta", "1e-300", "--epsilon", "1e-9", "--sampling-rate",
                           "1", "--steps", "1000000"]),
            ("--epsilon", ["batch", *DELTA, "--epsilon", "0.01", "--steps", "1000",
                           "--noise-multiplier", "0.5", "--dataset-size", "10"]),
            ("--noise-multiplier", ["spent", *DELTA, *rate, *steps]),
            ("--noise-multiplier", ["spent", *DELTA, *rate, *steps, "--noise-multiplier", "0"]),
            ("--noise-multiplier", ["spent", *DELTA, *rate, *steps, "--noise-multiplier", "inf"]),
            ("--noise-multiplier", ["noise", *DELTA, "--epsilon", "1", *PLAIN]),
            ("--sampling-rate", ["spent", *DELTA, *noise, *steps]),
            ("--sampling-rate", ["spent", *DELTA, *noise, *steps, "--sampling-rate", "1.5"]),
            ("--sampling-rate", ["spent", *DELTA, *noise, *steps, *rate, "--sampling",
                                 "full_batch"]),
            ("--sampling", ["spent", *DELTA, *PLAIN, "--sampling", "sometimes"]),
            ("--sampling", ["batch", *DELTA, "--epsilon", "1", *noise, *steps, "--sampling",
                            "full_batch"]),
            ("--batch-size and --sampling-rate", ["spent", *DELTA, *PLAIN, *DIGITS]),
            ("--steps and --epochs", ["spent", *DELTA, *PLAIN, "--epochs", "2"]),
            ("--batch-size", ["spent", *DELTA, *noise, *steps, "--batch-size", "3"]),
            ("--batch-size", ["spent", *DELTA, *noise, *steps, "--batch-size", "3", "--dataset-size", "2"]),
            ("--batch-size", ["spent", *DELTA, *noise, *steps, "--batch-size", "1.5", "--dataset-size", "20",
                         "--sampling", "fixed_size"]),
            ("--dataset-size", ["spent", *DELTA, *PLAIN, "--dataset-size", "0"]),
            ("--dataset-size", ["spent", *DELTA, *PLAIN, "--dataset-size", "many"]),
            ("--steps", ["spent", *DELTA, *rate, *noise]),
            ("--steps", ["spent", *DELTA, *rate, *noise, "--steps", "0"]),
            ("--steps", ["steps", *DELTA, "--epsilon", "1", *PLAIN]),
            ("--epochs", ["spent", *DELTA, *rate, *noise, "--epochs", "-1"]),
            ("--epochs", ["spent", *DELTA, *rate, *noise, "--epochs", "1e300"]),
            ("--batches-per-epoch", ["spent", *DELTA, *PLAIN, "--batches-per-epoch", "3"]),
            ("--batches-per-epoch", ["spent", *DELTA, *noise, *steps, "--sampling", "planned"]),
            ("--batches-per-epoch", ["batch", *DELTA, "--epsilon", "1", *noise, *steps, "--dataset-size", "9",
                           "--sampling", "partition", "--batches-per-epoch", "3"]),
            ("--dataset-size", ["batch", *DELTA, "--epsilon", "1", *noise, *steps, "--sampling",
                              "partition"]),
            ("--sampling", ["batch", *DELTA, "--epsilon", "1", *noise, *steps, "--sampling",
                            "planned"]),
            ("--truncation-probability", ["spent", *DELTA, *PLAIN, "--truncation-probability", "1e-9"]),
            ("--truncation-probability", ["spent", *DELTA, *PLAIN, "--sampling", "truncated_poisson"]),
            ("--max-batch-size", ["spent", *DELTA, *PLAIN, "--dataset-size", "9", "--max-batch-size",
                                 "3"]),
            ("--max-batch-size", ["spent", *DELTA, *PLAIN, "--dataset-size", "9", "--max-batch-size",
                                 "0", "--sampling", "truncated_poisson"]),
            ("--dataset-size", ["spent", *DELTA, *PLAIN, "--max-batch-size", "3", "--sampling",
                              "truncated_poisson"]),
            ("--max-batch-size and --truncation-probability", ["spent", *DELTA, *PLAIN, "--max-batch-size", "3",
                                           "--truncation-probability", "1e-9", "--sampling",
                                           "truncated_poisson"]),
            ("--max-batch-size", ["batch", *DELTA, "--epsilon", "1", *noise, *steps, "--sampling",
                                 "truncated_poisson", "--max-batch-size", "3", "--dataset-size",
                                 "9"]),
            ("--truncation-probability", ["spent", *DELTA, *PLAIN, "--sampling", "truncated_poisson", "--truncation-probability", "2"]),
            ("--truncation-probability: 0 is not above 0", ["spent", *DELTA, *PLAIN, "--sampling", "truncated_poisson",
                                         "--truncation-probability", "0"]),
            ("a probability of", ["noise", *DELTA, *rate, *steps, "--epsilon", "1", "--sampling",
                                  "truncated_poisson", "--truncation-probability", "1e-6"]),
            ("a probability of", ["steps", *DELTA, *rate, *noise, "--epsilon", "1", "--sampling",
                                  "truncated_poisson", "--truncation-probability", "1e-5"]),
            ("a probability of", ["batch", *DELTA, *noise, *steps, "--epsilon", "1", "--sampling",
                                  "truncated_poisson", "--truncation-probability", "1e-6"]),
            ("--relation", ["spent", *DELTA, *PLAIN, "--relation", "friends"]),
            ("--accountant", ["spent", *DELTA, *PLAIN, "--accountant", "gdp"]),
            ("--phase", ["spent", *DELTA, *PLAIN, "--phase", "steps"]),
            ("--phase", ["spent", *DELTA, *PLAIN, "--phase", "stops=3"]),
            ("steps is given twice", ["spent", *DELTA, *rate, *noise, "--phase",
                                      "steps=100000,steps=1"]),
            ("--steps and --epochs", ["spent", *DELTA, *rate, *noise, "--phase",
                                      "steps=3,epochs=1"]),
            ("--steps has no effect", ["spent", *DELTA, *PLAIN, "--phase", "steps=5"]),
            ("--steps has no effect", ["spent", *DELTA, *PLAIN, "--phase", "steps=5", "--phase",
                                       "epochs=2"]),
            ("--noise-multiplier has no effect", ["spent", *DELTA, *PLAIN, "--phase",
                                                  "noise-multiplier=1.1"]),
            ("--steps", ["spent", *DELTA, *rate, *noise, "--steps", "010"]),
            ("--noise-multiplier", ["compare", *DELTA, *rate, *steps, "--noise-multiplier",
                                    "9e18"]),
            ("--groups", ["compare", *DELTA, *PLAIN, "--groups", "0"]),
            ("--report", ["spent", *DELTA, *PLAIN, "--report", self.path("no/such/page")]),
            ("--report", ["spent", *DELTA, *PLAIN, "--report", self.folder]),
            ("--whatever", ["spent", *DELTA, *PLAIN, "--whatever"]),
            ("stray", ["spent", *DELTA, *PLAIN, "stray"]),
        ):
            with self.subTest(arguments=arguments):
                self.refuse(2, fact, *arguments)
        self.assertEqual(os.listdir(self.folder), [])

    def test_help_is_there_for_every_command_with_examples_that_work(self):
        self.assertIn("compare", self.succeed("--help"))
        for command in ("spent", "noise", "steps", "batch", "compare", "inspect"):
            text = self.succeed(command, "--help").replace("\\\n", "")
            examples = [line.split()[1:] for line in text.splitlines()
                        if line.startswith("  sotto-privacy-budget ")]
            self.assertTrue(examples, command)
            for example in examples:
                if "run.ledger" not in example:
                    self.succeed(*example)

    def test_an_answer_that_cannot_be_written_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = run("spent", *DELTA, *PLAIN, stdout=full)
        self.told(done, 1, "standard output: No space left on device")


if __name__ == "__main__":
    main()
