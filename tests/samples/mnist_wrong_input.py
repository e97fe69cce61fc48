#!/usr/bin/env python3
"""Gives the sample `mnist` wrong arguments and wrong files.

Usage: mnist_wrong_input.py PATH_OF_MNIST [unittest options]
"""

import gzip
import os
import random
import struct
import subprocess

from mnist_runs import (ALONE, NOISY, SMALL, Case, differing, main, run, start, steps_in)
from programs import charged, state_of


def without_checksum(checkpoint):
    return checkpoint.replace(b"sotto.xxh64", b"other.xxh64")


class WrongLaunch(Case):
    def test_one_of_several_processes_does_not_train_alone(self):
        ended = run(*SMALL, "--no-privacy", env={**os.environ, "OMPI_COMM_WORLD_SIZE": "2",
                                                 "SOTTO_MPI_LIBRARY": "/nowhere/x.so"})
        self.told(ended, 1, "Open MPI's mpirun launched 2 processes, and this build cannot join them")


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
            ("--validation", ["--validation", "1"]),
            ("--delta", ["--delta", "0"]),
            ("--steps", ["--steps", "0"]),
            ("--steps", ["--steps", "3", "--epochs", "2"]),
            ("--epochs", ["--epochs", "-2"]),
            ("--epochs", ["--epochs", "1e300"]),
            ("--batch-size", ["--batch-size", "0"]),
            ("--batch-size", ["--train-size", "10", "--batch-size", "11"]),
            ("--physical-batch", ["--physical-batch", "0"]),
            ("--accumulation-steps", ["--accumulation-steps", "0"]),
            ("--memory-limit", ["--memory-limit", "2 gallons"]),
            ("--checkpoint-activations", ["--checkpoint-activations", "some"]),
            ("not a Sequential", ["--checkpoint-activations", "2"]),
            ("--clip-bound", ["--clip-bound", "0"]),
            ("--clip-bound: 1e-300 is not from 7.89e-31 to 1.27e+30", ["--clip-bound", "1e-300"]),
            ("--cuda-graph: the cpu has no CUDA graphs", ["--cuda-graph"]),
            ("--resume: the value is empty", ["--resume", ""]),
            ("--save: the value is empty", ["--save="]),
            ("--save: the value is missing before --quiet", ["--save", "--quiet"]),
            ("--steps: is given 2 times", ["--steps", "2", "--steps", "3"]),
            ("--quiet: is given 2 times", ["--quiet", "--quiet"]),
            ("--seed: 99999999999999999999 is not", ["--seed", "99999999999999999999"]),
            ("less private than the noise", ["--batch-size", "8", "--noise-multiplier", "2",
                                             "--adaptive-clip-quantile", "0.5", "--save", save]),
            ("--clip-rule", ["--clip-rule", "sometimes"]),
            ("--clip-groups", ["--clip-groups", "some"]),
            ("--adaptive-clip-quantile", ["--adaptive-clip-quantile", "2"]),
            ("--sampling", ["--sampling", "shuffle"]),
            ("--max-batch-size", ["--max-batch-size", "5"]),
            ("--accountant", ["--accountant", "gdp"]),
            ("balls_and_bins", ["--sampling", "balls_and_bins"]),
            ("--clipping", ["--clipping", "three"]),
            ("--optimizer", ["--optimizer", "magic"]),
            ("--activation", ["--activation", "step"]),
            ("--lr", ["--lr", "0"]),
            ("--momentum", ["--momentum", "1"]),
            ("--ema", ["--ema", "1"]),
            ("--seed", ["--seed", "-1"]),
            ("--threads", ["--threads", "-1"]),
            ("--ledger-block", ["--ledger-block", "0"]),
            ("--preset", ["--preset", "eps99"]),
            ("--no-privacy", ["--no-privacy", "--epsilon", "1"]),
            ("--no-privacy", ["--no-privacy", "--clip-bound", "1"]),
            ("--whatever", ["--whatever"]),
            ("stray", ["stray"]),
            ("folder", ["--save", self.path("no/such/folder/model")]),
            ("folder", ["--report", self.folder]),
            ("same name", ["--save", save, "--report", save]),
            ("same name", ["--save", save, "--json", save + ".ledger"]),
            ("--save", ["--resume", save, "--save", save]),
            ("--clip-bound", [*NOISY, "--clip-bound", "1e-300", "--save", save]),
            ("noise grid", [*SMALL, "--noise-multiplier", "1e-300", "--save", save]),
            ("prv", [*NOISY, "--sampling", "balls_and_bins", "--accountant", "prv", "--save", save]),
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
        self.refuse(2, "exists already", *NOISY, "--steps", "2", "--save", model)
        os.remove(model)
        self.refuse(2, "exists already", *NOISY, "--steps", "2", "--save", model)
        os.remove(state_of(model))
        self.refuse(2, "give another name", *NOISY, "--steps", "2", "--save", model)
        del before["model"], before["model.state"]
        self.assertEqual(differing(before, self.contents()), [])

    def test_a_run_resumed_with_other_settings_is_refused_and_says_which(self):
        model = self.path("model")
        self.succeed(*NOISY, "--steps", "2", "--save", model)
        for fact, arguments in (
            ("batch is 32.0 here and 64.0", ["--batch-size", "32"]),
            ("delta", ["--delta", "1e-6"]),
            ("noise multiplier", ["--noise-multiplier", "1"]),
            ("epsilon", ["--epsilon", "1"]),
            ("clip bound", ["--clip-bound", "1"]),
            ("activation", ["--activation", "relu"]),
            ("train size", ["--train-size", "500"]),
            ("seed", ["--seed", "6"]),
            ("optimizer", ["--optimizer", "adam"]),
            ("privacy", ["--no-privacy"]),
        ):
            with self.subTest(arguments=arguments):
                self.refuse(2, fact, "--resume", model, *arguments)
        self.assertEqual(charged(model + ".ledger"), 2)


    def test_a_limit_that_the_data_alone_exceed_blames_the_data(self):
        self.refuse(1, "the data need more than the limit of 1000000 bytes", *NOISY, "--steps", "1",
                    "--memory-limit", "1MB", "--save", self.path("model"))
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_differs_from_a_preset_is_told(self):
        given = ["--preset", "quick", *NOISY, "--steps", "1"]
        first = next(line for line in self.succeed(*given).splitlines() if "preset" in line)
        self.assertEqual(first.split(",")[0], "preset quick")
        for change in ("steps is 1 instead of not set", "epsilon is not set instead of 3.0",
                       "noise multiplier is 2.0 instead of not set", "batch is 64.0 instead of 1024.0"):
            self.assertIn(change, first)
        self.assertNotIn("delta", first)


class WrongFiles(Case):
    def setUp(self):
        super().setUp()
        self.model = self.path("model")
        self.succeed(*NOISY, "--steps", "4", "--save", self.model, "--ledger-block", "1",
                     "--statistics")
        self.state = state_of(self.model)

    def resume(self, status, fact):
        self.refuse(status, fact, "--resume", self.model, "--steps", "8")

    def edit(self, path, change):
        with open(path, "rb") as file:
            content = file.read()
        with open(path, "wb") as file:
            file.write(change(content))

    def test_a_checkpoint_that_is_not_there_or_cut_short_is_refused(self):
        self.refuse(1, "absent", "--resume", self.path("absent"))
        self.edit(self.state, lambda text: text[:-100])
        self.resume(1, f"sotto-mnist: damaged: safetensors: {self.state}")
        self.edit(self.state, lambda text: text[:20])
        self.resume(1, self.state)
        self.edit(self.state, lambda text: b"")
        self.resume(1, self.state)

    def test_a_model_without_its_state_is_refused(self):
        os.remove(self.state)
        self.resume(1, "it is a model, and there is no " + self.state)
        os.remove(self.model)
        self.resume(1, f"there is no {self.state} to resume from")

    def test_a_checkpoint_of_something_else_is_refused(self):
        header = b'{"__metadata__":{"a":"b"}}      '
        self.edit(self.state, lambda text: struct.pack("<Q", len(header)) + header)
        self.resume(1, "not a checkpoint")
        self.edit(self.state, lambda text: b"no tensors at all")
        self.resume(1, "not a checkpoint")

    def test_a_pipe_that_never_ends_is_no_checkpoint(self):
        with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
            number = endless.stdout.fileno()
            done = run("--resume", f"/dev/fd/{number}", pass_fds=[number], timeout=60)
        self.told(done, 2, "not a regular file")

    def test_a_checkpoint_without_one_of_its_tensors_is_refused(self):
        self.edit(self.state, without_checksum)
        self.edit(self.state, lambda text: text.replace(b"conv1.weight", b"conv1.wiight"))
        self.resume(1, "conv1.w")

    def test_a_checkpoint_with_bits_flipped_or_blocks_zeroed_is_refused(self):
        with open(self.state, "rb") as file:
            good = file.read()
        data = 8 + struct.unpack("<Q", good[:8])[0]
        draws = random.Random(1)
        for _ in range(20):
            damaged = bytearray(good)
            at = draws.randrange(data, len(good))
            damaged[at] ^= 1 << draws.randrange(8)
            self.edit(self.state, lambda text, damaged=damaged: bytes(damaged))
            self.resume(1, f"sotto-mnist: damaged: safetensors: {self.state}: damaged: its checksum is")
        start = len(good) - 512
        self.edit(self.state, lambda text: good[:start] + bytes(512))
        self.resume(1, "damaged: its checksum is")

    def test_a_checkpoint_without_a_checksum_is_resumed_and_the_program_says_so(self):
        said = "the checkpoint has no checksum"
        self.assertNotIn(said, self.succeed("--resume", self.model, *ALONE, "--steps", "5"))
        self.edit(self.state, without_checksum)
        self.assertIn(said, self.succeed("--resume", self.model, *ALONE, "--steps", "6"))

    def test_a_ledger_that_is_missing_damaged_or_shorter_than_the_checkpoint_is_refused(self):
        ledger = self.model + ".ledger"
        with open(ledger, "rb") as file:
            whole = file.read()
        lines = whole.splitlines(keepends=True)
        damaged = whole.replace(b'"reserve":1', b'"reserve":2', 1)
        self.assertNotEqual(damaged, whole)
        for fact, text in (
            ("model.ledger:4: the checksum does not fit", damaged),
            ("model.ledger:3: the checksum does not fit", b"".join(lines[:2] + lines[3:])),
            ("model.ledger:1: no header", b""),
            ("behind the checkpoint", lines[0]),
        ):
            with self.subTest(fact=fact):
                self.edit(ledger, lambda _, text=text: text)
                self.resume(1, fact)
        os.remove(ledger)
        self.resume(1, "model.ledger")
        self.assertFalse(os.path.exists(ledger))

    def test_the_ledger_of_another_run_and_an_old_copy_are_refused(self):
        ledger = self.model + ".ledger"
        with open(ledger, "rb") as file:
            old = file.read()
        other = self.path("other")
        self.succeed(*NOISY, "--steps", "4", "--save", other, "--ledger-block", "1")
        with open(other + ".ledger", "rb") as file:
            foreign = file.read()
        self.edit(ledger, lambda text: foreign)
        self.resume(1, "not the checkpoint's ledger")
        self.edit(ledger, lambda text: old)
        self.succeed("--resume", self.model, *ALONE, "--steps", "6")
        self.edit(ledger, lambda text: old)
        self.resume(1, "behind the checkpoint")

    def test_statistics_that_are_damaged_are_refused_and_missing_ones_are_not(self):
        path = self.model + ".statistics.json"
        self.edit(path, lambda text: text[:-10])
        self.resume(1, "statistics")
        os.remove(path)
        self.succeed("--resume", self.model, *ALONE, "--steps", "6")

    def test_a_ledger_that_is_removed_in_mid_run_leaves_a_copy_to_go_on_with(self):
        ledger = self.model + ".ledger"
        running = start("--resume", self.model, "--steps", "1000000", "--eval-every", "1", *ALONE)
        for line in running.stdout:
            if steps_in(line):
                break
        os.remove(ledger)
        _, told = running.communicate()
        self.assertEqual(running.returncode, 1, told)
        # The model is saved alone, unless the step was saved just before.
        model = f"(; the model of step [0-9]+ is saved as {self.model})?"
        self.assertRegex(told, f"is saved as {ledger}.rescue{model}\n$")
        os.rename(ledger + ".rescue", ledger)
        self.assertGreater(charged(ledger), 4)
        self.succeed("--resume", self.model, *ALONE, "--steps", "400")
        self.assertGreaterEqual(charged(ledger), 400)

    def test_a_ledger_in_use_by_another_run_is_refused(self):
        other = start("--resume", self.model, "--steps", "1000000", "--eval-every", "1", *ALONE)
        for line in other.stdout:
            if steps_in(line):
                break
        try:
            self.resume(1, "another training uses")
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
            out = self.succeed("--data", self.folder, "--batch-size", "20", "--steps", "2",
                               "--noise-multiplier", "1")
            self.assertIn("120 training and 30 test samples", out)
            for name in os.listdir(self.folder):
                os.remove(self.path(name))

    def test_a_missing_folder_and_damaged_files_are_refused_before_anything_is_written(self):
        save = ["--batch-size", "20", "--steps", "2", "--save", self.path("model")]
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
        self.refuse(2, "--batch-size", "--data", self.folder, "--batch-size", "121", "--steps", "1")

    def test_a_run_on_files_is_resumed_on_files_only(self):
        self.write_mnist()
        data = ["--data", self.folder]
        self.succeed(*data, "--batch-size", "20", "--steps", "2", "--noise-multiplier", "1", "--save",
                     self.path("model"))
        self.refuse(2, "data from files", "--resume", self.path("model"), "--steps", "3")
        self.succeed("--resume", self.path("model"), "--steps", "3", *data)


if __name__ == "__main__":
    main()
