#!/usr/bin/env python3
"""Runs the sample `privacy_budget` as users do, and compares its numbers with published ones.

Usage: privacy_budget_test.py PATH_OF_PRIVACY_BUDGET PATH_OF_WRITE_LEDGERS [unittest options]
"""

import re

from privacy_budget_runs import (DELTA, DIGITS, FULL, FULL_EPSILON, PLAIN, PLAIN_EPSILON, Case,
                                 main, run)


class Spent(Case):
    def test_epsilon_is_between_published_bounds_and_its_own(self):
        for training, low, high in (
            (PLAIN, *PLAIN_EPSILON),
            ([*DIGITS, "--noise-multiplier", "1.1", "--steps", "14040"], 2.36941, 2.38970),
            ([*DIGITS, "--noise-multiplier", "0.7", "--steps", "10530"], 5.62475, 5.64545),
        ):
            answer = self.spent(*training)
            self.assertGreater(answer["epsilon"], low)
            self.assertLess(answer["epsilon"], high)
            self.assertLess(answer["epsilon_at_least"], answer["epsilon"])
            self.assertGreater(answer["epsilon_at_least"], answer["epsilon"] * (1 - 1e-3))

    def test_rdp_is_the_published_bound(self):
        answer = self.spent(*DIGITS, "--noise-multiplier", "1.1", "--steps", "14040",
                            "--accountant", "rdp")
        self.assertLessEqual(answer["epsilon"], 2.594364)
        self.assertGreater(answer["epsilon"], 2.594363 * 0.99)
        self.assertNotIn("epsilon_at_least", answer)

    def test_full_batches_have_the_exact_epsilon_for_both_neighbourhoods(self):
        self.assertAlmostEqual(self.spent(*FULL)["epsilon"], FULL_EPSILON, places=5)
        twice = [*FULL[:3], "8", *FULL[4:], "--relation", "replace_one"]
        self.assertAlmostEqual(self.spent(*twice)["epsilon"], FULL_EPSILON, places=5)

    def test_delta_is_the_inverse_of_epsilon(self):
        epsilon = self.spent(*FULL)["epsilon"]
        answer = self.ask("spent", "--epsilon", str(epsilon), *FULL)["answers"][0]
        self.assertAlmostEqual(answer["delta"] / 1e-5, 1, places=6)

    def test_several_deltas_and_epsilons_are_answered_in_order(self):
        answers = self.ask("spent", "--delta", "1e-6", "1e-5,1e-4", "--epsilon", "1", *PLAIN)
        self.assertEqual([a["delta"] for a in answers["answers"][:3]], [1e-6, 1e-5, 1e-4])
        self.assertEqual(answers["answers"][3]["epsilon"], 1)
        epsilons = [a["epsilon"] for a in answers["answers"][:3]]
        self.assertEqual(epsilons, sorted(epsilons, reverse=True))

    def test_phases_add_up(self):
        whole = self.spent(*PLAIN)["epsilon"]
        halves = self.spent("--sampling-rate", "0.01", "--noise-multiplier", "1.1", "--phase",
                            "steps=300", "--phase", "steps=700")["epsilon"]
        self.assertAlmostEqual(whole, halves, places=9)
        full = self.spent("--noise-multiplier", "8", "--sampling", "full_batch", "--phase",
                          "steps=32", "--phase", "noise-multiplier=4,steps=8")
        self.assertAlmostEqual(full["epsilon"], FULL_EPSILON, places=5)  # 32/64 + 8/16 = 16/16

    def test_epochs_are_steps_over_the_rate_and_the_batch_is_the_rate_of_the_population(self):
        by_epochs = self.ask("spent", *DELTA, *DIGITS, "--noise-multiplier", "1", "--epochs", "2")
        self.assertEqual(by_epochs["releases"][0]["count"], 469)
        self.assertEqual(by_epochs["releases"][0]["sampling_rate"], 256 / 60000)

    def test_the_table_rounds_upper_bounds_up_and_lower_bounds_down(self):
        for delta in ("1e-5", "2e-5", "3e-5", "1e-6"):
            arguments = ["spent", "--delta", delta, *PLAIN]
            answer = self.ask(*arguments)["answers"][0]
            line = self.succeed(*arguments).splitlines()[-1].split()
            above, below = float(line[1]), float(line[2])
            self.assertGreaterEqual(above, answer["epsilon"])
            self.assertLess(above, answer["epsilon"] + 1e-3)
            self.assertLessEqual(below, answer["epsilon_at_least"])
            self.assertGreater(below, answer["epsilon_at_least"] - 1e-3)

    def test_a_delta_that_lets_a_record_out_is_noted(self):
        arguments = ["--noise-multiplier", "1", *DIGITS, "--steps", "3"]
        self.assertIn("note: delta", self.succeed("spent", "--delta", "1e-4", *arguments))
        self.assertNotIn("note: delta", self.succeed("spent", "--delta", "1e-5", *arguments))


class Samplings(Case):
    def test_each_costs_what_it_is_worth_in_full_or_poisson_batches(self):
        replaced = ["--relation", "replace_one"]
        for options in (
            ["--sampling", "planned", "--batches-per-epoch", "4", "--steps", "64", "--noise-multiplier", "4"],
            ["--sampling", "partition", "--batches-per-epoch", "4", "--steps", "64", "--noise-multiplier",
             "8", *replaced],
            ["--sampling", "partition", "--dataset-size", "10", "--batch-size", "3", "--epochs", "16",
             "--noise-multiplier", "8", *replaced],
            ["--sampling", "balls_and_bins", "--batches-per-epoch", "1", *FULL[2:]],
            ["--sampling", "fixed_size", "--sampling-rate", "1", "--steps", "16",
             "--noise-multiplier", "8", *replaced],
        ):
            with self.subTest(options=options):
                accountant = [] if "balls_and_bins" in options else ["--accountant", "pld"]
                answer = self.spent(*options, *accountant)
                if accountant:
                    self.assertAlmostEqual(answer["epsilon"], FULL_EPSILON, places=5)
                else:  # by rdp, whose bound is above the truth
                    self.assertGreater(answer["epsilon"], FULL_EPSILON)
                    self.assertLess(answer["epsilon"], 4.728508)  # tests/dp/accounting/analytic_gaussian_test.cpp
        for options in (
            ["--sampling", "cyclic_poisson", "--batches-per-epoch", "4", *PLAIN[:4], "--steps", "4000"],
            ["--sampling", "truncated_poisson", "--truncation-probability", "1e-15", *PLAIN],
        ):
            with self.subTest(options=options):
                answer = self.spent(*options)
                self.assertGreater(answer["epsilon"], PLAIN_EPSILON[0])
                self.assertLess(answer["epsilon"], PLAIN_EPSILON[1])

    def test_a_largest_batch_truncates(self):
        plain = [*DIGITS, "--noise-multiplier", "1.1", "--steps", "100"]
        truncated = ["spent", *plain, "--sampling", "truncated_poisson"]
        found = self.ask(*truncated, "--delta", "0.1", "--max-batch-size", "320")
        cut = found["releases"][0]["cut"]
        exact = 4.884608700e-5  # P[Binomial(60001, 256/60000) > 320], from the sum of its terms
        self.assertGreaterEqual(cut, exact * (1 - 1e-6))
        self.assertLessEqual(cut, exact * 1.02)
        same = self.ask(*truncated, "--delta", "0.1", "--truncation-probability", str(cut))
        self.assertEqual(found["answers"], same["answers"])
        enough = self.ask(*truncated, *DELTA, "--max-batch-size", "420")["answers"][0]["epsilon"]
        self.assertAlmostEqual(enough, self.spent(*plain)["epsilon"], places=4)

    def test_a_bound_that_takes_delta_is_refused_with_one_that_would_do(self):
        truncated = [*DIGITS, *DELTA, "--sampling", "truncated_poisson", "--max-batch-size"]
        spent = ["spent", "--noise-multiplier", "1.1", "--steps", "100", *truncated]
        noise = ["noise", "--epsilon", "0.5", "--steps", "100", *truncated]
        steps = ["steps", "--epsilon", "0.5", "--noise-multiplier", "1.1", *truncated]
        for question in (spent, noise, steps):
            for bound in ("200", "300"):  # below the mean, and above it
                with self.subTest(question=question[0], bound=bound):
                    done = run(*question, bound)
                    self.assertEqual((done.returncode, done.stdout), (2, ""))
                    would = int(re.search(r"a bound of (\d+) units would do", done.stderr).group(1))
                    self.assertLess(would, 420)
                    self.succeed(*question, str(would))
                    if question[0] != "spent":  # where what is dear but finite is told
                        self.refuse(2, "would do", *question, str(would - 1))

    def test_an_epoch_that_was_begun_counts_in_full(self):
        options = ["--sampling", "planned", "--batches-per-epoch", "8", "--noise-multiplier", "4"]
        one, whole, more = (self.spent(*options, "--steps", str(steps))["epsilon"]
                            for steps in (1, 8, 9))
        self.assertEqual(one, whole)
        self.assertGreater(more, whole)

    def test_the_accountant_that_supports_the_events_is_used_and_named(self):
        bins = ["spent", *DELTA, "--sampling", "balls_and_bins", "--batches-per-epoch", "4", *FULL[2:]]
        self.assertEqual(self.ask(*bins)["accountant"], "rdp")
        self.assertIn("rdp (pld has no proof", self.succeed(*bins))
        self.refuse(2, "--accountant pld", *bins, "--accountant", "pld")
        self.assertIn("gdp: no limit", self.ask("compare", *DELTA, *PLAIN)
                      ["rows"][4]["accountants"][3]["reason"])

    def test_events_that_no_accountant_supports_are_refused(self):
        for options in (["--sampling", "partition", "--batches-per-epoch", "4"],
                        ["--sampling", "fixed_size", "--sampling-rate", "0.1"],
                        ["--sampling", "balls_and_bins", "--batches-per-epoch", "4", "--relation",
                         "replace_one"]):
            self.refuse(2, "no proof", "spent", *DELTA, *options, *FULL[2:])
            self.refuse(2, "no proof", "noise", "--epsilon", "1", *DELTA, *options, *FULL[4:])

    def test_targets_are_met_whatever_the_sampling(self):
        replaced = ["--relation", "replace_one"]
        for options in (
            ["--sampling", "truncated_poisson", "--truncation-probability", "1e-15", *DIGITS],
            ["--sampling", "fixed_size", *DIGITS, *replaced],
            ["--sampling", "partition", *DIGITS, *replaced],
            ["--sampling", "balls_and_bins", *DIGITS],
            ["--sampling", "cyclic_poisson", "--batches-per-epoch", "4", *DIGITS],
            ["--sampling", "planned", "--batches-per-epoch", "100"],
        ):
            with self.subTest(options=options):
                target = ["--epsilon", "3", *DELTA, *options]
                noise = self.ask("noise", *target, "--steps", "1000")
                self.assertLessEqual(noise["epsilon"], 3)
                self.assertGreater(noise["epsilon"], 3 * (1 - 1e-3))
                multiplier = ["--noise-multiplier", str(noise["noise_multiplier"])]
                steps = self.ask("steps", *target, *multiplier)["steps"]
                self.assertGreaterEqual(steps, 1000)
                self.assertLess(steps, 1300)
                above = self.spent(*options, *multiplier, "--steps", str(steps + 1))
                self.assertGreater(above["epsilon"], 3)

    def test_batch_sizes_of_epochs_are_found_too(self):
        for sampling in (["partition", "--relation", "replace_one"], ["balls_and_bins"]):
            training = ["--dataset-size", "60000", "--steps", "1000", "--noise-multiplier", "6",
                        "--sampling", *sampling]
            found = self.ask("batch", "--epsilon", "3", *DELTA, *training)
            batches = found["event"]["batches"]
            self.assertEqual(found["batch"], -(-60000 // batches))
            within, above = (self.spent(*training, "--batch-size", str(-(-60000 // n)))["epsilon"]
                             for n in (batches, batches - 1))
            self.assertEqual(found["epsilon"], within)
            self.assertGreater(above, 3)


class Targets(Case):
    def test_noise_is_the_published_one(self):
        for epsilon, rate, steps, noise in (("1", "0.01", "1000", 1.414631),
                                            ("3", str(256 / 60000), "14040", 0.967991)):
            found = self.ask("noise", "--epsilon", epsilon, *DELTA, "--sampling-rate", rate,
                             "--steps", steps)
            self.assertAlmostEqual(found["noise_multiplier"], noise, delta=3e-4 * noise)
            self.assertLessEqual(found["epsilon"], float(epsilon))
            self.assertGreater(found["epsilon"], float(epsilon) * (1 - 2e-4))

    def test_printed_noise_meets_the_target(self):
        text = self.succeed("noise", "--epsilon", "3", *DELTA, *DIGITS, "--epochs", "60")
        noise = re.search(r"noise multiplier +(\S+)", text).group(1)
        answer = self.spent(*DIGITS, "--epochs", "60", "--noise-multiplier", noise)
        self.assertLessEqual(answer["epsilon"], 3)

    def test_one_step_more_than_the_maximum_is_too_many(self):
        training = ["--noise-multiplier", "1", "--sampling-rate", "0.02"]
        found = self.ask("steps", "--epsilon", "2", *DELTA, *training)
        self.assertAlmostEqual(found["epochs"], found["steps"] * 0.02)
        for more, within in ((0, True), (1, False)):
            epsilon = self.spent(*training, "--steps", str(found["steps"] + more))["epsilon"]
            self.assertEqual(epsilon <= 2, within)

    def test_no_step_at_all_is_an_answer(self):
        text = self.succeed("steps", "--epsilon", "0.1", *DELTA, "--noise-multiplier", "0.5",
                            "--sampling-rate", "1")
        self.assertIn("a single step is more", text)

    def test_one_record_more_than_the_largest_batch_is_too_many(self):
        training = ["--noise-multiplier", "1.1", "--dataset-size", "60000", "--steps", "5000"]
        found = self.ask("batch", "--epsilon", "3", *DELTA, *training)
        self.assertEqual(found["sampling_rate"], found["batch"] / 60000)
        for more, within in ((0, True), (1, False)):
            epsilon = self.spent(*training, "--batch-size", str(found["batch"] + more))["epsilon"]
            self.assertEqual(epsilon <= 3, within)

    def test_a_rate_is_found_without_a_population(self):
        training = ["--noise-multiplier", "1.1", "--steps", "1000"]
        found = self.ask("batch", "--epsilon", "1.51537", *DELTA, *training)
        self.assertAlmostEqual(found["sampling_rate"], 0.01, delta=1e-5)
        self.assertNotIn("batch", found)


class Compare(Case):
    def test_every_cell_is_a_number_or_says_why_not(self):
        found = self.ask("compare", *DELTA, *DIGITS, "--noise-multiplier", "1.1", "--steps",
                         "14040")
        self.assertEqual(len(found["rows"]), 14)
        cells = {(row["event"]["sampling"], row["relation"], cell["accountant"]): cell
                 for row in found["rows"] for cell in row["accountants"]}
        self.assertEqual(len(cells), 56)
        for key, cell in cells.items():
            self.assertNotEqual("reason" in cell, "epsilon" in cell, key)
            self.assertEqual(cell["guarantee"], "epsilon" in cell and key[2] != "gdp", key)
        poisson = {name: cells["poisson", "add_or_remove_one", name]["epsilon"]
                   for name in ("pld", "prv", "rdp", "gdp")}
        self.assertAlmostEqual(poisson["gdp"], 2.3222, delta=6e-5)  # tests/dp/accounting/gdp_test.cpp
        self.assertAlmostEqual(poisson["pld"], 2.37956, delta=1e-3)
        self.assertGreater(poisson["rdp"], poisson["prv"])
        self.assertGreater(poisson["prv"], poisson["pld"])
        self.assertLess(poisson["prv"], poisson["pld"] + 0.015)
        self.assertIn("no proof", cells["fixed_size", "add_or_remove_one", "pld"]["reason"])
        self.assertGreater(cells["poisson", "replace_one", "pld"]["epsilon"], poisson["pld"])

    def test_the_table_labels_answers_that_are_no_guarantee_or_unsupported(self):
        text = self.succeed("compare", *DELTA, *PLAIN)
        self.assertEqual(text.count("gdp (no guarantee)"), 2)
        self.assertIn("no proof", text)
        one = self.succeed("compare", *DELTA, *PLAIN, "--relation", "replace_one")
        self.assertEqual(one.count("gdp (no guarantee)"), 1)

    def test_large_rates_leave_room_for_no_groups(self):
        text = self.succeed("compare", *DELTA, "--noise-multiplier", "4", "--sampling-rate", "1",
                            "--steps", "16")
        self.assertEqual(text.count("cyclic_poisson, passes of 1, rate 1"), 2)
        self.refuse(2, "--groups", "compare", *DELTA, "--noise-multiplier", "4",
                    "--sampling-rate", "0.5", "--steps", "16", "--groups", "3")


if __name__ == "__main__":
    main()
