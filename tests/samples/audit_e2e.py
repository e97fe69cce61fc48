#!/usr/bin/env python3
"""Runs the sample `audit` as users do, on few samples.

Usage: audit_e2e.py PATH_OF_AUDIT [unittest options]
"""

import json
import os

from mnist_runs import ALONE, Case, Page, main, run
from programs import charged

SMALL = [*ALONE, "--train-size", "200", "--canaries", "600", "--batch-size", "400", "--steps", "4"]
WHOLE = [*ALONE, "--train-size", "200", "--canaries", "4000", "--batch-size", "4200", "--steps", "1"]


class Audit(Case):
    def audit(self, status, *arguments, size=SMALL):
        done = run(*size, *arguments, "--json", self.path("audit.json"))
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stderr, "")
        with open(self.path("audit.json"), encoding="utf-8") as file:
            return done.stdout, json.load(file)

    def refuse(self, fact, *arguments):
        done = run(*arguments)
        self.told(done, 2, fact)
        self.assertEqual(done.stdout, "")


class Whole(Audit):
    # At noise multiplier 0.3 a bound below 1 has a probability of far less than 10^-6.
    def test_the_bound_is_below_the_accountant_and_far_above_nothing(self):
        out, found = self.audit(0, "--noise-multiplier", "0.3")
        self.assertGreater(found["one_run"]["epsilon"], 1)
        self.assertLess(found["one_run"]["epsilon"], found["accountant"])
        self.assertEqual(found["claim"], found["accountant"])
        self.assertIs(found["contradicted"], False)
        self.assertIn("no contradiction", out.splitlines()[-1])
        self.assertIn("step 4/4", out)

    def test_a_claim_that_is_too_small_is_contradicted_everywhere(self):
        page = self.path("page.html")
        out, found = self.audit(3, "--noise-multiplier", "0.3", "--claimed-epsilon", "0.5", "--report", page)
        self.assertIn("THE CLAIM IS CONTRADICTED", out.splitlines()[-1])
        self.assertIs(found["contradicted"], True)
        with open(page, encoding="utf-8") as file:
            self.assertIn("The claim is contradicted.", Page(file.read()).text)

    # Mu is 1.67, and the audit finds a bound above 1.12, the mu whose epsilon is 5. The count of right
    # guesses would have to be 1000 of 1000 to prove this bound.
    def test_a_bound_that_needs_independence_says_so(self):
        out, found = self.audit(3, "--noise-multiplier", "0.6", "--claimed-epsilon", "5", "--report",
                                self.path("page.html"), size=WHOLE)
        self.assertLess(found["one_run"]["epsilon"], 5)
        self.assertIs(found["contradicted"], False)
        self.assertIs(found["doubtful"], True)
        self.assertIn("IF CANARIES ARE INDEPENDENT", out.splitlines()[-1])
        with open(self.path("page.html"), encoding="utf-8") as file:
            self.assertIn("The claim is in doubt.", Page(file.read()).text)

    # At noise 50 the best attack is right 51 times in 100: the confidence is 1 - 10^-4.
    def test_noise_hides_the_canaries(self):
        _, found = self.audit(0, "--noise-multiplier", "50", "--confidence", "0.9999")
        self.assertLess(found["one_run"]["epsilon"], found["accountant"])

    def test_a_confidence_is_told_with_all_of_its_digits(self):
        out, _ = self.audit(0, "--noise-multiplier", "0.3", "--confidence", "0.999999999999",
                            "--report", self.path("page.html"))
        self.assertIn(" 99.9999999999 % confidence", out)
        self.assertNotIn("100 %", out)
        with open(self.path("page.html"), encoding="utf-8") as file:
            self.assertIn("with 99.9999999999 % confidence", Page(file.read()).text)

    def test_the_target_epsilon_is_what_is_claimed(self):
        _, found = self.audit(0, "--epsilon", "3")
        self.assertLessEqual(found["accountant"], 3)
        self.assertGreater(found["accountant"], 2.99)

    def test_the_right_guesses_follow_from_the_scores(self):
        _, found = self.audit(0, "--noise-multiplier", "0.5", "--score", "spread")
        order = sorted(range(600), key=lambda k: found["scores"][k])
        guessed_in, guessed_out = (found["one_run"][key] for key in ("guessed_in", "guessed_out"))
        right = sum(found["included"][k] for k in order[600 - guessed_in:])
        right += sum(not found["included"][k] for k in order[:guessed_out])
        self.assertEqual(right, found["one_run"]["correct"])
        self.assertEqual(found["settings"]["Score"], "spread")

    def test_canaries_can_be_on_one_parameter_alone(self):
        _, found = self.audit(0, "--canary-parameter", "conv2.weight", "--noise-multiplier", "0.3")
        self.assertEqual(found["settings"]["Canaries on"], "conv2.weight")
        self.assertGreater(found["one_run"]["epsilon"], 1)

    def test_a_memory_limit_changes_how_and_not_what(self):
        noise = ("--noise-multiplier", "50", "--confidence", "0.9999")  # of a small claim
        _, free = self.audit(0, *noise)
        _, limited = self.audit(0, *noise, "--memory-limit", "16MB")
        self.assertEqual(free["accountant"], limited["accountant"])
        self.assertEqual(free["settings"]["Canaries on"], limited["settings"]["Canaries on"])
        self.assertEqual(len(free["included"]), len(limited["included"]))

    def test_the_page_nests_and_loads_nothing(self):
        page = self.path("page.html")
        self.audit(0, "--report", page)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        parsed = Page(text)
        self.assertEqual((parsed.faults, parsed.open), ([], []))
        self.assertIn("This page is SECRET.", parsed.text)
        self.assertNotRegex(text, r"(src|href)=|@import|url\(")

    def test_quiet_runs_print_the_findings_alone(self):
        out, _ = self.audit(0, "--quiet")
        self.assertEqual(len(out.splitlines()), 3)


class Ledgers(Audit):
    def test_an_audit_counts_in_a_ledger_of_its_own(self):
        ledger = self.path("audit.ledger")
        self.audit(0, "--noise-multiplier", "50", "--confidence", "0.9999", "--ledger", ledger)
        self.assertEqual(4, charged(ledger))
        self.refuse("counts 4 releases", *SMALL, "--ledger", ledger)
        self.assertEqual(4, charged(ledger))

    def test_an_audit_of_somebodys_data_needs_a_ledger(self):
        self.refuse("--ledger: is required with --data", *SMALL, "--data", self.folder)

    def test_findings_that_cannot_be_written_are_written_elsewhere(self):
        done = run(*SMALL, "--noise-multiplier", "50", "--confidence", "0.9999", "--json", "/dev/full", env={**os.environ, "TMPDIR": self.folder})
        self.told(done, 1, "it is saved as " + self.path("full.rescue"))
        with open(self.path("full.rescue"), encoding="utf-8") as file:
            self.assertEqual(600, len(json.load(file)["scores"]))
        os.remove(self.path("full.rescue"))
        with open("/dev/full", "wb") as full:
            done = run(*SMALL, "--noise-multiplier", "50", "--confidence", "0.9999", stdout=full, env={**os.environ, "TMPDIR": self.folder})
        self.told(done, 1, "it is saved as " + self.path("sotto-results.rescue"))


class WrongArguments(Audit):
    def test_each_is_refused_in_one_line(self):
        for fact, arguments in (
            ("--epsilon", ["--epsilon", "0"]),
            ("--epsilon", ["--epsilon", "1", "--noise-multiplier", "1"]),
            ("--noise-multiplier", ["--noise-multiplier", "0"]),
            ("--delta", ["--delta", "1"]),
            ("--clip-bound", ["--clip-bound", "-1"]),
            ("--batch-size", ["--train-size", "10", "--canaries", "10", "--batch-size", "21"]),
            ("--physical-batch", ["--physical-batch", "0"]),
            ("--precision", ["--precision", "f8"]),
            ("--memory-limit", ["--memory-limit", "2 gallons"]),
            ("--steps", ["--steps", "0"]),
            ("--lr", ["--lr", "nan"]),
            ("--canaries", ["--canaries", "3"]),
            ("30000 canaries on 26010", ["--train-size", "10", "--canaries", "30000"]),
            ("800 canaries on 16", ["--train-size", "10", "--canaries", "800", "--batch-size", "9",
                                     "--canary-parameter", "conv1.bias"]),
            ("--canary-parameter", ["--train-size", "10", "--canary-parameter", "nothing"]),
            ("--score", ["--score", "magic"]),
            ("--confidence", ["--confidence", "1"]),
            ("--claimed-epsilon", ["--claimed-epsilon", "-1"]),
            ("--seed", ["--seed", "-1"]),
            ("--threads", ["--threads", "-1"]),
            ("folder", ["--report", self.folder]),
            ("same name", ["--report", self.path("a"), "--json", self.path("a")]),
            ("--whatever", ["--whatever"]),
        ):
            with self.subTest(arguments=arguments):
                self.refuse(fact, *arguments)
        self.assertEqual(os.listdir(self.folder), [])

    def test_data_that_are_not_there_are_a_failure_of_another_kind(self):
        done = run("--data", self.path("nowhere"), "--ledger", self.path("ledger"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("nowhere", done.stderr)


if __name__ == "__main__":
    main()
