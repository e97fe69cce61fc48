#!/usr/bin/env python3
"""Runs the sample `mnist` as users do: to its end, interrupted and killed.

Usage: mnist_e2e.py PATH_OF_MNIST [unittest options]
"""

import fcntl
import json
import os
import pty
import random
import signal
import struct
import subprocess
import termios

import mnist_runs
from mnist_runs import (
    ALONE,
    CLOSING,
    NOISY,
    PLAIN,
    SIZES,
    SMALL,
    Case,
    Page,
    differing,
    main,
    run,
    show_on,
    start,
    steps_in,
    updates_of,
)
from programs import charged, read_checkpoint, state_of


class Whole(Case):
    def test_a_run_prints_one_closing_line_with_the_epsilon_of_its_ledger_rounded_up(self):
        spent = []
        for steps in (3, 5, 8, 12):
            model = self.path(f"model{steps}")
            out = self.succeed(*NOISY, "--steps", str(steps), "--json", self.path("a.json"),
                               "--save", model)
            closing = CLOSING.match(out.splitlines()[-1])
            with open(self.path("a.json"), encoding="utf-8") as file:
                privacy = json.load(file)["privacy"]
            spent.append(privacy["epsilon"])
            self.assertGreaterEqual(float(closing.group(2)), spent[-1])
            self.assertLess(float(closing.group(2)), spent[-1] + 0.0101)
            self.assertEqual(closing.group(3), "1e-05")
            self.assertEqual(privacy["releases"], steps)
            self.assertEqual(charged(model + ".ledger"), steps)
        # Rounding to the nearest would make at least one of these epsilons too small.
        self.assertTrue(any(round(epsilon, 2) < epsilon for epsilon in spent))

    def test_the_target_epsilon_is_reached_and_not_passed(self):
        report = self.report(*SMALL, "--epsilon", "1.5", "--steps", "20")
        self.assertLessEqual(report["privacy"]["epsilon"], 1.5)
        self.assertGreater(report["privacy"]["epsilon"], 1.49)

    def test_every_sampling_and_clipping_trains_and_goes_on(self):
        cases = {
            "poisson": (["--clip-groups", "layers"], "Poisson: every unit", "add or remove one"),
            "truncated_poisson": (["--max-batch-size", "150"], "truncated Poisson",
                                  "add or remove one"),
            "fixed_size": (["--adaptive-clip-quantile", "0.5"], "a subset of fixed size",
                           "replace one"),
            "partition": ([], "passes in a random order", "replace one"),
            "balls_and_bins": (["--accountant", "rdp"], "in a pass of", "add or remove one"),
        }
        for sampling, (options, words, relation) in cases.items():
            model = self.path(sampling)
            arguments = [*NOISY, "--sampling", sampling, *options]
            self.succeed(*arguments, "--steps", "3", "--save", model)
            report = self.report("--resume", model, *ALONE, "--steps", "7")
            privacy = report["privacy"]
            self.assertIn(words, privacy["sampling"])
            self.assertIn(relation, privacy["relation"])
            self.assertEqual(privacy["releases"], 7)
            self.assertEqual(charged(model + ".ledger"), 7)
            if sampling == "poisson":
                self.assertIn("in 4 groups", privacy["clipping"])
            if sampling == "fixed_size":
                self.assertIn("quantile 0.5", privacy["clipping"])

    def test_training_without_privacy_says_so_everywhere(self):
        page = self.path("page.html")
        out = self.succeed(*PLAIN, "--steps", "6", "--report", page, "--json", self.path("a.json"))
        self.assertIn("NO PRIVACY", out)
        self.assertIn("(no privacy)", out)
        self.assertNotIn("ε", out)
        with open(page, encoding="utf-8") as file:
            self.assertIn("No privacy.", Page(file.read()).text)
        with open(self.path("a.json"), encoding="utf-8") as file:
            self.assertIsNone(json.load(file)["privacy"])

    def test_the_report_is_a_page_whose_tags_nest_and_that_loads_nothing(self):
        page = self.path("page.html")
        self.succeed(*NOISY, "--steps", "6", "--report", page)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        parsed = Page(text)
        self.assertEqual((parsed.faults, parsed.open), ([], []))
        self.assertIn("not private", parsed.text)
        self.assertNotRegex(text, r"src=|href=\"(?!#)|@import|url\(")

    def test_on_a_terminal_a_bar_is_drawn_over_itself_and_never_wider_than_the_screen(self):
        for width in (30, 60, 100):
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
            with show_on(theirs, *NOISY, "--steps", "30") as process:
                os.close(theirs)
                shown = b""
                try:
                    while part := os.read(ours, 65536):
                        shown += part
                except OSError:
                    pass  # how Linux says that the other side is closed
                os.close(ours)
            self.assertEqual(process.returncode, 0)
            lines = shown.decode().replace("\r\n", "\n").split("\n")
            self.assertRegex(lines[-2].split("\r")[-1], CLOSING)
            frames = [frame.replace("\x1b[K", "") for frame in lines[-2].split("\r")[:-1]]
            self.assertGreater(len(frames), 2)
            for frame in frames:
                self.assertLess(len(frame), width)
            self.assertIn("━", shown.decode() if width > 30 else "━")

    def test_quiet_runs_print_the_closing_line_alone(self):
        out = self.succeed(*NOISY, "--steps", "2", "--quiet")
        self.assertEqual(len(out.splitlines()), 1)

    def test_it_learns(self):
        report = self.report(*ALONE, "--train-size", "2000", "--test-size", "300", "--batch-size", "64",
                             "--epochs", "4", "--no-privacy", "--lr", "0.05")
        # Ten classes: a guess is right in one of ten.
        self.assertGreater(report["test_accuracy"], 0.5)

    def test_the_physical_batch_changes_neither_sampling_nor_accounting(self):
        steps = 40
        reports = [
            self.report(*NOISY, "--steps", str(steps), "--physical-batch", size)
            for size in ("7", "512")
        ]
        for key in ("sampling", "mechanism", "epsilon", "releases"):
            self.assertEqual(reports[0]["privacy"][key], reports[1]["privacy"][key])
        # The number of drawn samples is binomial: 600 samples in 40 steps with rate 64/600. The bound
        # of six standard deviations fails once in 5e8 runs.
        for report in reports:
            drawn = sum(sum(norms["counts"]) + norms["below"] + norms["above"] for norms in report["norms"])
            mean, rate = 64 * steps, 64 / 600
            self.assertLess(abs(drawn - mean), 6 * (mean * (1 - rate)) ** 0.5)

    def test_a_memory_limit_alone_keeps_the_bytes_of_every_phase(self):
        for kind in (NOISY, PLAIN):
            free, held = (self.report(*kind, "--steps", "2", *limit)
                          for limit in ([], ["--memory-limit", "4MB"]))
            self.assertGreater(max(phase["peak_bytes"] for phase in free["phases"]), 4e6)
            self.assertLessEqual(max(phase["peak_bytes"] for phase in held["phases"]), 4e6)

    def test_every_choice_of_rule_passes_and_optimizer_runs(self):
        for extra in (
            ["--clip-rule", "auto-s", "--clipping", "ghost", "--optimizer", "adam", "--lr", "0.001"],
            ["--clip-rule", "normalize", "--lr-schedule", "cosine", "--warmup", "3", "--ema", "0.9"],
            ["--activation", "relu", "--lr-schedule", "linear", "--normalize"],
        ):
            with self.subTest(extra=extra):
                self.succeed(*NOISY, "--steps", "3", *extra)

    def test_help_explains_every_option(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        for name in ("--epsilon", "--no-privacy", "--resume", "--preset", "--physical-batch"):
            self.assertIn(name, done.stdout)


class SameSeed(Case):
    def test_two_runs_without_privacy_and_with_two_threads_write_the_same_bytes(self):
        for name in ("a", "b"):
            self.succeed(*SIZES, "--no-privacy", "--threads", "2", "--steps", "6", "--save",
                         self.path(name))
        for name_of in (str, state_of):
            with open(name_of(self.path("a")), "rb") as a, open(name_of(self.path("b")), "rb") as b:
                self.assertTrue(a.read() == b.read())

    def test_another_seed_gives_another_model(self):
        self.succeed(*PLAIN, "--steps", "2", "--save", self.path("a"))
        self.succeed(*SMALL, "--no-privacy", "--steps", "2", "--seed", "6", "--save",
                     self.path("b"))
        a, b = read_checkpoint(self.path("a"))[0], read_checkpoint(self.path("b"))[0]
        self.assertNotEqual(a["model.conv1.weight"], b["model.conv1.weight"])

    def test_a_resumed_run_without_privacy_ends_with_the_bits_of_an_uninterrupted_one(self):
        tail = ["--ema", "0.9", "--save", self.path("a")]
        self.succeed(*PLAIN, "--steps", "23", *tail)
        self.succeed(*PLAIN, "--steps", "11", *tail[:-1], self.path("b"))
        self.succeed("--resume", self.path("b"), "--steps", "23", *ALONE)
        a, b = read_checkpoint(self.path("a")), read_checkpoint(self.path("b"))
        self.assertEqual(differing(a[0], b[0]), [])
        self.assertEqual(a[1]["step"], b[1]["step"])

    def test_the_noise_of_two_private_runs_differs(self):
        for name in ("a", "b"):
            self.succeed(*NOISY, "--steps", "1", "--save", self.path(name))
        a, b = read_checkpoint(self.path("a"))[0], read_checkpoint(self.path("b"))[0]
        self.assertNotEqual(a["model.conv1.weight"], b["model.conv1.weight"])


class Interrupted(Case):
    def interrupt(self, sign, *arguments):
        process = start(*arguments)
        seen = 0
        for line in process.stdout:
            seen = steps_in(line) or seen
            if seen >= 3:
                break
        process.send_signal(sign)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 128 + sign, err)
        self.assertIn("stopped by a signal", out)
        return out

    def test_a_run_stopped_by_a_signal_and_resumed_spends_what_an_uninterrupted_one_does(self):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which the programs inherit; nohup ignores it
        whole = self.report(*NOISY, "--steps", "120")["privacy"]
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=sign):
                model = self.path(f"model{sign}")
                self.interrupt(sign, *NOISY, "--steps", "120", "--eval-every", "1", "--save", model)
                step = read_checkpoint(model)[1]["step"]
                self.assertGreaterEqual(step, 3)
                self.assertLess(step, 120)
                self.assertEqual(charged(model + ".ledger"), step)
                resumed = self.report("--resume", model, *ALONE)["privacy"]
                self.assertEqual(resumed["epsilon"], whole["epsilon"])
                self.assertEqual(resumed["releases"], 120)

    def test_a_run_whose_reader_left_saves_first(self):
        model = self.path("model")
        process = start(*NOISY, "--steps", "100000", "--eval-every", "1", "--save", model)
        while (steps_in(process.stdout.readline()) or 0) < 3:
            pass
        process.stdout.close()
        self.assertEqual(process.wait(timeout=300), 128 + signal.SIGPIPE)
        process.stderr.close()
        step = read_checkpoint(model)[1]["step"]
        self.assertGreaterEqual(step, 3)
        self.assertEqual(charged(model + ".ledger"), step)

    def test_a_hangup_that_was_to_be_ignored_is(self):
        process = subprocess.Popen(["nohup", mnist_runs.MNIST, *NOISY, "--steps", "30", "--eval-every", "1"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        out, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0)
        self.assertIn("step 30/30", out)

    def test_without_save_a_signal_ends_a_run_after_its_step(self):
        out = self.interrupt(signal.SIGINT, *NOISY, "--steps", "10000", "--eval-every", "1")
        self.assertNotIn("--resume", out)
        self.assertRegex(out.splitlines()[-1], CLOSING)


class Killed(Case):
    KILLS = 10
    STEPS = "100000"

    def run_until_killed(self, model, arguments, lines):
        """Lets the run print some evaluations, kills it, and returns its first and last steps."""
        process = start(*arguments, "--eval-every", "1", "--save-every", "3", "--ledger-block", "2")
        first = read_checkpoint(model)[1]["step"] if os.path.exists(state_of(model)) else 0
        last = first
        for _ in range(lines):
            line = process.stdout.readline()
            if not line:
                break
            last = steps_in(line) or last
        process.kill()
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, -signal.SIGKILL, err)
        for line in out.splitlines():
            # The last line may be truncated; a truncated number could only be smaller.
            last = max(last, steps_in(line) or last)
        return first, last

    def test_after_kills_at_random_moments_the_ledger_counts_at_least_what_was_released(self):
        model = self.path("model")
        moments = random.Random(20240501)
        released = 0
        arguments = [*NOISY, "--steps", self.STEPS, "--save", model]
        for kill in range(self.KILLS):
            # The first run gets far enough to have saved something.
            lines = moments.randrange(5, 25) if kill == 0 else moments.randrange(0, 25)
            first, last = self.run_until_killed(model, arguments, lines)
            released += last - first
            with self.subTest(kill=kill):
                total = charged(model + ".ledger")
                self.assertGreaterEqual(total, released)
                tensors, progress = read_checkpoint(model)
                self.assertLessEqual(progress["step"], last + 1)
                self.assertLessEqual(progress["ledger"]["releases"], total)
                self.assertEqual(updates_of(tensors), {progress["step"]} - {0})
            arguments = ["--resume", model, *ALONE]
        self.assertGreater(released, self.KILLS)
        # The resumed run reaches its end, with everything charged.
        before = charged(model + ".ledger")
        step = read_checkpoint(model)[1]["step"]
        report = self.report("--resume", model, *ALONE, "--steps", str(step + 4))
        self.assertEqual(report["privacy"]["releases"], before + 4)
        self.assertEqual(charged(model + ".ledger"), before + 4)

    def test_a_resumed_run_says_how_many_releases_were_lost_and_stays_within_its_target(self):
        model = self.path("model")
        arguments = [*SMALL, "--epsilon", "2", "--steps", "60", "--save", model]
        process = start(*arguments, "--eval-every", "1", "--save-every", "1000", "--ledger-block",
                        "1")
        last = 0
        while last < 20:
            last = steps_in(process.stdout.readline()) or last
        process.kill()
        process.communicate(timeout=300)
        lost = charged(model + ".ledger")
        self.assertGreaterEqual(lost, 20)
        self.assertEqual(read_checkpoint(model)[1]["step"], 0)
        out = self.succeed("--resume", model, *ALONE, "--json", self.path("run.json"))
        self.assertIn(f"the ledger holds {lost} releases more than the checkpoint", out)
        with open(self.path("run.json"), encoding="utf-8") as file:
            privacy = json.load(file)["privacy"]
        self.assertLessEqual(privacy["epsilon"], 2)
        self.assertEqual(privacy["releases"], 60)
        self.assertEqual(read_checkpoint(model)[1]["step"], 60 - lost)


if __name__ == "__main__":
    main()
