#!/usr/bin/env python3
"""Runs the sample `mnist` as people do: to its end, interrupted, killed, and with wrong input.

Usage: mnist_e2e.py PATH_OF_MNIST [unittest options]
"""

import fcntl
import gzip
import html.parser
import json
import os
import pty
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

MNIST = ""
CLOSING = re.compile(
    r"^test accuracy \d+\.\d\d %   \((no privacy|ε = (\S+), δ = (\S+))\)   \S+ epochs in \S+ s$"
)
SMALL = ["--train-size", "600", "--test-size", "40", "--batch", "64"]
NOISY = [*SMALL, "--noise-multiplier", "2", "--seed", "5"]
PLAIN = [*SMALL, "--no-privacy", "--seed", "5"]


def run(*arguments, cwd=None):
    return subprocess.run(
        [MNIST, *arguments], capture_output=True, text=True, timeout=300, check=False, cwd=cwd
    )


def start(*arguments):
    return subprocess.Popen(
        [MNIST, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def steps_in(line):
    found = re.search(r"step (\d+)/", line)
    return int(found.group(1)) if found else None


def read_checkpoint(path):
    """The tensors as (dtype, shape, bytes), and the progress, by our own reading of the format."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return tensors, json.loads(metadata["sotto.mnist.progress"])


def charged(path):
    """Releases that a ledger counts: reservations whole, unless they are settled."""
    total = open_reservation = 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                break  # the crash was in the middle of this append
            entry = json.loads(line)
            if "reserve" in entry:
                total += open_reservation
                open_reservation = entry["reserve"]
            elif "settle" in entry:
                total += entry["settle"]
                open_reservation = 0
    return total + open_reservation


def updates_of(tensors):
    """The update counts that the optimizer keeps for each parameter."""
    return {
        struct.unpack("<q", data)[0]
        for name, (_, _, data) in tensors.items()
        if name.startswith("optimizer.") and name.endswith(".steps")
    }


class Page(html.parser.HTMLParser):
    """Finds tags that do not nest; keeps the text."""

    VOID = {"meta", "br", "link", "img", "hr"}

    def __init__(self, text):
        super().__init__()
        self.open, self.faults, self.text = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data):
        self.text += data


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def contents(self):
        found = {}
        for name in os.listdir(self.folder):
            with open(self.path(name), "rb") as file:
                found[name] = file.read()
        return found

    def succeed(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        closing = [line for line in done.stdout.splitlines() if line.startswith("test accuracy")]
        self.assertEqual(len(closing), 1, done.stdout)
        self.assertRegex(closing[0], CLOSING)
        self.assertEqual(done.stdout.splitlines()[-1], closing[0])
        return done.stdout

    def refuse(self, status, fact, *arguments):
        """The run fails with one line that holds the fact, and prints nothing else."""
        done = run(*arguments)
        self.assertEqual(done.returncode, status, (arguments, done.stdout, done.stderr))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("mnist: "), done.stderr)
        self.assertIn(fact, done.stderr)
        self.assertNotIn("test accuracy", done.stdout)

    def report(self, *arguments):
        self.succeed(*arguments, "--json", self.path("run.json"))
        with open(self.path("run.json"), encoding="utf-8") as file:
            return json.load(file)


class Whole(Case):
    def test_a_run_prints_one_closing_line_with_the_epsilon_of_its_ledger_rounded_up(self):
        arguments = [*NOISY, "--steps", "12", "--json", self.path("a.json"), "--save",
                     self.path("model")]
        closing = CLOSING.match(self.succeed(*arguments).splitlines()[-1])
        with open(self.path("a.json"), encoding="utf-8") as file:
            report = json.load(file)
        epsilon = report["privacy"]["epsilon"]
        self.assertGreater(epsilon, 0)
        self.assertGreaterEqual(float(closing.group(2)), epsilon)
        self.assertLess(float(closing.group(2)), epsilon + 0.0101)
        self.assertEqual(closing.group(3), "1e-05")
        self.assertEqual(report["privacy"]["releases"], 12)
        self.assertEqual(charged(self.path("model.ledger")), 12)

    def test_the_target_epsilon_is_reached_and_not_passed(self):
        report = self.report(*SMALL, "--epsilon", "1.5", "--steps", "20")
        self.assertLessEqual(report["privacy"]["epsilon"], 1.5)
        self.assertGreater(report["privacy"]["epsilon"], 1.49)

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
        self.assertNotRegex(text, r"(src|href)=|@import|url\(")

    def test_on_a_terminal_a_bar_is_drawn_over_itself_and_never_wider_than_the_screen(self):
        for width in (30, 60, 100):
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
            with subprocess.Popen([MNIST, *NOISY, "--steps", "30"], stdout=theirs) as process:
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
        report = self.report("--train-size", "2000", "--test-size", "300", "--batch", "64",
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
        # Samples drawn in all: binomial, 600 samples in 40 steps with rate 64/600; the bound of six
        # deviations fails once in 5e8 runs.
        for report in reports:
            drawn = sum(sum(norms["counts"]) for norms in report["norms"])
            mean, rate = 64 * steps, 64 / 600
            self.assertLess(abs(drawn - mean), 6 * (mean * (1 - rate)) ** 0.5)

    def test_every_choice_of_rule_passes_and_optimizer_runs(self):
        for extra in (
            ["--clip-rule", "automatic", "--passes", "two", "--optimizer", "adam", "--lr", "0.001"],
            ["--clip-rule", "normalise", "--lr-schedule", "cosine", "--ema", "0.9"],
            ["--activation", "relu", "--lr-schedule", "linear", "--normalize", "--threads", "1"],
        ):
            with self.subTest(extra=extra):
                self.succeed(*NOISY, "--steps", "3", *extra)

    def test_help_explains_every_option(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        for name in ("--epsilon", "--no-privacy", "--resume", "--preset", "--physical-batch"):
            self.assertIn(name, done.stdout)


class SameSeed(Case):
    def test_two_runs_without_privacy_write_the_same_bytes(self):
        for name in ("a", "b"):
            self.succeed(*PLAIN, "--steps", "10", "--save", self.path(name))
        with open(self.path("a"), "rb") as a, open(self.path("b"), "rb") as b:
            self.assertEqual(a.read(), b.read())

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
        self.succeed("--resume", self.path("b"), "--steps", "23")
        a, b = read_checkpoint(self.path("a")), read_checkpoint(self.path("b"))
        self.assertEqual(a[0], b[0])
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
        whole = self.report(*NOISY, "--steps", "120")["privacy"]
        for sign in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=sign):
                model = self.path(f"model{sign}")
                self.interrupt(sign, *NOISY, "--steps", "120", "--eval-every", "1", "--save", model)
                step = read_checkpoint(model)[1]["step"]
                self.assertGreaterEqual(step, 3)
                self.assertLess(step, 120)
                self.assertEqual(charged(model + ".ledger"), step)
                resumed = self.report("--resume", model)["privacy"]
                self.assertEqual(resumed["epsilon"], whole["epsilon"])
                self.assertEqual(resumed["releases"], 120)

    def test_without_save_a_signal_ends_a_run_after_its_step(self):
        out = self.interrupt(signal.SIGINT, *NOISY, "--steps", "10000", "--eval-every", "1")
        self.assertNotIn("--resume", out)
        self.assertRegex(out.splitlines()[-1], CLOSING)


class Killed(Case):
    KILLS = 10
    STEPS = "100000"

    def run_until_killed(self, model, arguments, lines):
        """Lets the run print some evaluations, kills it, and returns its first and last steps."""
        process = start(*arguments, "--eval-every", "1", "--save-every", "3", "--write-ahead", "2")
        first = read_checkpoint(model)[1]["step"] if os.path.exists(model) else 0
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
            # The last line may be cut anywhere; cut, it could only show a smaller number.
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
                self.assertLessEqual(progress["releases"], total)
                self.assertEqual(updates_of(tensors), {progress["step"]} - {0})
            arguments = ["--resume", model]
        self.assertGreater(released, self.KILLS)
        # And the run goes on to an end, with everything charged.
        before = charged(model + ".ledger")
        step = read_checkpoint(model)[1]["step"]
        report = self.report("--resume", model, "--steps", str(step + 4))
        self.assertEqual(report["privacy"]["releases"], before + 4)
        self.assertEqual(charged(model + ".ledger"), before + 4)

    def test_a_resumed_run_says_how_many_releases_were_lost_and_stays_within_its_target(self):
        model = self.path("model")
        arguments = [*SMALL, "--epsilon", "2", "--steps", "60", "--save", model]
        process = start(*arguments, "--eval-every", "1", "--save-every", "1000", "--write-ahead",
                        "1")
        last = 0
        while last < 20:
            last = steps_in(process.stdout.readline()) or last
        process.kill()
        process.communicate(timeout=300)
        lost = charged(model + ".ledger")
        self.assertGreaterEqual(lost, 20)
        self.assertEqual(read_checkpoint(model)[1]["step"], 0)
        out = self.succeed("--resume", model, "--json", self.path("run.json"))
        self.assertIn(f"the ledger holds {lost} releases more than the checkpoint", out)
        with open(self.path("run.json"), encoding="utf-8") as file:
            privacy = json.load(file)["privacy"]
        self.assertLessEqual(privacy["epsilon"], 2)
        self.assertEqual(privacy["releases"], 60)
        self.assertEqual(read_checkpoint(model)[1]["step"], 60 - lost)


class WrongArguments(Case):
    def test_each_is_refused_in_one_line_with_status_2(self):
        save = self.path("model")
        for fact, arguments in (
            ("--epsilon", ["--epsilon", "0"]),
            ("--epsilon", ["--epsilon", "nan"]),
            ("--epsilon", ["--epsilon", "inf"]),
            ("--epsilon", ["--epsilon", "abc"]),
            ("--noise-multiplier", ["--noise-multiplier", "-1"]),
            ("--noise-multiplier", ["--epsilon", "1", "--noise-multiplier", "1"]),
            ("--delta", ["--delta", "1"]),
            ("--delta", ["--delta", "0"]),
            ("--steps", ["--steps", "0"]),
            ("--steps", ["--steps", "3", "--epochs", "2"]),
            ("--epochs", ["--epochs", "-2"]),
            ("--epochs", ["--epochs", "1e300"]),
            ("--batch", ["--batch", "0"]),
            ("--batch", ["--train-size", "10", "--batch", "11"]),
            ("--physical-batch", ["--physical-batch", "0"]),
            ("--clip", ["--clip", "0"]),
            ("--clip-rule", ["--clip-rule", "sometimes"]),
            ("--passes", ["--passes", "three"]),
            ("--optimizer", ["--optimizer", "magic"]),
            ("--activation", ["--activation", "step"]),
            ("--lr", ["--lr", "0"]),
            ("--momentum", ["--momentum", "1"]),
            ("--ema", ["--ema", "1"]),
            ("--seed", ["--seed", "-1"]),
            ("--threads", ["--threads", "-1"]),
            ("--write-ahead", ["--write-ahead", "0"]),
            ("--preset", ["--preset", "eps99"]),
            ("--no-privacy", ["--no-privacy", "--epsilon", "1"]),
            ("--no-privacy", ["--no-privacy", "--clip", "1"]),
            ("--whatever", ["--whatever"]),
            ("stray", ["stray"]),
            ("folder", ["--save", self.path("no/such/folder/model")]),
            ("folder", ["--report", self.folder]),
            ("same name", ["--save", save, "--report", save]),
            ("same name", ["--save", save, "--json", save + ".ledger"]),
            ("--save", ["--resume", save, "--save", save]),
        ):
            with self.subTest(arguments=arguments):
                self.refuse(2, fact, *arguments)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_target_that_no_noise_can_meet_touches_no_file(self):
        self.refuse(2, "epsilon", *SMALL, "--epsilon", "1e-9", "--delta", "1e-300", "--steps",
                    "1000000", "--save", self.path("model"))
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_an_earlier_run_saved_is_not_overwritten(self):
        model = self.path("model")
        self.succeed(*NOISY, "--steps", "2", "--save", model)
        before = self.contents()
        self.refuse(2, "there already", *NOISY, "--steps", "2", "--save", model)
        os.remove(model)
        self.refuse(2, "there already", *NOISY, "--steps", "2", "--save", model)
        del before["model"]
        self.assertEqual(before, self.contents())

    def test_a_run_resumed_with_other_settings_is_refused_and_says_which(self):
        model = self.path("model")
        self.succeed(*NOISY, "--steps", "2", "--save", model)
        for fact, arguments in (
            ("batch is 32.0 here and 64.0", ["--batch", "32"]),
            ("delta", ["--delta", "1e-6"]),
            ("noise multiplier", ["--noise-multiplier", "1"]),
            ("epsilon", ["--epsilon", "1"]),
            ("clip bound", ["--clip", "1"]),
            ("activation", ["--activation", "relu"]),
            ("train size", ["--train-size", "500"]),
            ("seed", ["--seed", "6"]),
            ("optimizer", ["--optimizer", "adam"]),
            ("privacy", ["--no-privacy"]),
        ):
            with self.subTest(arguments=arguments):
                self.refuse(2, fact, "--resume", model, *arguments)
        self.assertEqual(charged(model + ".ledger"), 2)


class WrongFiles(Case):
    def setUp(self):
        super().setUp()
        self.model = self.path("model")
        self.succeed(*NOISY, "--steps", "4", "--save", self.model, "--write-ahead", "1")

    def resume(self, status, fact):
        self.refuse(status, fact, "--resume", self.model, "--steps", "8")

    def edit(self, path, change):
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(change(content))

    def test_a_checkpoint_that_is_not_there_or_cut_short_is_refused(self):
        self.refuse(1, "absent", "--resume", self.path("absent"))
        self.edit(self.model, lambda text: text[:-100])
        self.resume(1, self.model)
        self.edit(self.model, lambda text: text[:20])
        self.resume(1, self.model)
        self.edit(self.model, lambda text: b"")
        self.resume(1, self.model)

    def test_a_checkpoint_of_something_else_is_refused(self):
        header = b'{"__metadata__":{"a":"b"}}      '
        self.edit(self.model, lambda text: struct.pack("<Q", len(header)) + header)
        self.resume(1, "not a checkpoint")

    def test_a_checkpoint_without_one_of_its_tensors_is_refused(self):
        self.edit(self.model, lambda text: text.replace(b"conv1.weight", b"conv1.wiight"))
        self.resume(1, "conv1.w")

    def test_a_ledger_that_is_missing_damaged_or_shorter_than_the_checkpoint_is_refused(self):
        ledger = self.model + ".ledger"
        with open(ledger, "rb") as file:
            whole = file.read()
        damaged = whole.replace(b'"reserve"', b'"rezerve"', 1)
        self.assertNotEqual(damaged, whole)
        self.edit(ledger, lambda text: damaged)
        self.resume(1, "model.ledger")
        first_line = whole[: whole.index(b"\n") + 1]
        self.edit(ledger, lambda text: first_line)
        self.resume(1, "the ledger holds 0 releases")
        os.remove(ledger)
        self.resume(1, "model.ledger")
        self.assertFalse(os.path.exists(ledger))

    def test_statistics_that_are_damaged_are_refused_and_missing_ones_are_not(self):
        path = self.model + ".statistics.json"
        self.edit(path, lambda text: text[:-10])
        self.resume(1, "statistics")
        os.remove(path)
        self.succeed("--resume", self.model, "--steps", "6")

    def test_a_ledger_in_use_by_another_run_is_refused(self):
        other = start("--resume", self.model, "--steps", "1000000", "--eval-every", "1")
        for line in other.stdout:
            if steps_in(line):
                break
        try:
            self.resume(1, "model.ledger")
        finally:
            other.kill()
            other.communicate()


class DataFiles(Case):
    def write(self, name, magic, sizes, content, compress):
        data = struct.pack(">I", magic) + b"".join(struct.pack(">I", n) for n in sizes) + content
        with open(self.path(name), "wb") as file:
            file.write(gzip.compress(data) if compress else data)

    def write_mnist(self, compress=True):
        end = ".gz" if compress else ""
        pixels = random.Random(7)
        for part, count in (("train", 120), ("t10k", 30)):
            images = pixels.randbytes(count * 784)
            labels = bytes(k % 10 for k in range(count))
            self.write(f"{part}-images-idx3-ubyte{end}", 2051, (count, 28, 28), images, compress)
            self.write(f"{part}-labels-idx1-ubyte{end}", 2049, (count,), labels, compress)

    def test_mnist_is_read_plain_and_compressed(self):
        for compress in (True, False):
            self.write_mnist(compress)
            out = self.succeed("--data", self.folder, "--batch", "20", "--steps", "2",
                               "--noise-multiplier", "1")
            self.assertIn("120 training and 30 test samples", out)
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_a_missing_folder_and_damaged_files_are_refused_before_anything_is_written(self):
        save = ["--batch", "20", "--steps", "2", "--save", self.path("model")]
        self.refuse(1, "nowhere", "--data", self.path("nowhere"), *save)
        self.write_mnist()
        images = self.path("train-images-idx3-ubyte.gz")
        with open(images, "rb") as file:
            whole = file.read()
        for damaged in (whole[:-50], whole[:5000] + b"\x00" * 40 + whole[5040:], b""):
            with open(images, "wb") as file:
                file.write(damaged)
            self.refuse(1, "train-images-idx3-ubyte.gz", "--data", self.folder, *save)
        self.assertEqual([name for name in os.listdir(self.folder) if "model" in name], [])

    def test_a_batch_larger_than_the_files_is_refused(self):
        self.write_mnist()
        self.refuse(2, "--batch", "--data", self.folder, "--batch", "121", "--steps", "1")

    def test_a_run_on_files_is_resumed_on_files_only(self):
        self.write_mnist()
        data = ["--data", self.folder]
        self.succeed(*data, "--batch", "20", "--steps", "2", "--noise-multiplier", "1", "--save",
                     self.path("model"))
        self.refuse(2, "data from files", "--resume", self.path("model"), "--steps", "3")
        self.succeed("--resume", self.path("model"), "--steps", "3", *data)


if __name__ == "__main__":
    MNIST = os.path.abspath(sys.argv.pop(1))
    unittest.main()
