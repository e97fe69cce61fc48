#!/usr/bin/env python3
"""Checks which of the files of the sample `mnist` may be published, and which are secret.

Usage: mnist_files.py PATH_OF_MNIST [unittest options]
"""

import fcntl
import json
import os
import stat
import struct

from mnist_runs import ALONE, NOISY, PLAIN, Case, main, run
from programs import charged, held, read_checkpoint, read_tensors, state_of


class Files(Case):
    STATISTICS = "model.statistics.json"

    def mode(self, name):
        return stat.S_IMODE(os.stat(self.path(name)).st_mode)

    def test_the_model_is_weights_with_their_statement_and_all_else_is_secret(self):
        for sampling in ("poisson", "balls_and_bins"):
            model = self.path(sampling)
            report = self.report(*NOISY, "--sampling", sampling, "--accountant", "rdp", "--steps",
                                 "3", "--save", model)
            tensors, metadata = read_tensors(model)
            state, marked = read_tensors(state_of(model))
            self.assertEqual({"model." + name: tensor for name, tensor in tensors.items()},
                             {name: tensor for name, tensor in state.items()
                              if name.startswith("model.")})
            self.assertEqual(set(metadata), {"sotto.privacy", "sotto.xxh64"})
            statement = json.loads(metadata["sotto.privacy"])
            for key in ("epsilon", "delta", "releases", "sampling", "mechanism"):
                self.assertEqual(statement[key], report["privacy"][key])
            self.assertIn("sotto.secret", marked)
            self.assertEqual(self.mode(sampling + ".state"), 0o600)
            # The training checkpoint contains the remaining batches of the epoch.
            self.assertEqual("engine.sampler.rest" in state, sampling == "balls_and_bins")

    def test_the_model_of_an_average_is_the_average(self):
        model = self.path("model")
        self.succeed(*NOISY, "--steps", "3", "--ema", "0.5", "--save", model)
        state = read_checkpoint(model)[0]
        for name, tensor in read_tensors(model)[0].items():
            self.assertEqual(tensor, state["moving_average.average." + name])
            self.assertNotEqual(tensor, state["model." + name])

    def test_a_model_without_privacy_says_so(self):
        self.succeed(*PLAIN, "--steps", "1", "--save", self.path("model"))
        statement = json.loads(read_tensors(self.path("model"))[1]["sotto.privacy"])
        self.assertEqual(statement, "none: trained with --no-privacy")

    def test_statistics_are_written_when_they_are_asked_for_and_kept_on(self):
        model = self.path("model")
        self.succeed(*NOISY, "--steps", "2", "--save", model)
        self.assertFalse(os.path.exists(self.path(self.STATISTICS)))
        self.succeed("--resume", model, *ALONE, "--steps", "4", "--statistics")
        self.report("--resume", model, *ALONE, "--steps", "6", "--eval-every", "1")
        self.assertEqual(self.mode(self.STATISTICS), 0o600)
        with open(self.path(self.STATISTICS), encoding="utf-8") as file:
            found = json.load(file)
        self.assertIn("NOT PRIVATE", found)
        self.assertEqual([point[0] for point in found["points"]], [4, 5, 6])

    def test_report_and_help_say_which_files_may_be_published(self):
        privacy = self.report(*NOISY, "--steps", "1", "--statistics", "--save",
                              self.path("model"))["privacy"]
        self.assertIn("The file model:", " ".join(privacy["covered"]))
        for name in ("model.state, to resume from", "model.ledger", self.STATISTICS):
            self.assertIn(f"The file {name}", " ".join(privacy["not_covered"]))
        shown = run("--help").stdout
        for text in ("FILE.state, SECRET", "FILE.ledger", "FILE.statistics.json"):
            self.assertIn(text, shown)

    def test_a_ledger_that_counts_nothing_is_taken_and_another_is_not(self):
        model = self.path("model")
        self.succeed(*NOISY, "--steps", "1", "--save", model)
        ledger = model + ".ledger"
        with open(ledger, "rb") as file:
            lines = file.read().splitlines(keepends=True)
        for path in (model, state_of(model)):
            os.remove(path)
        save = [*NOISY, "--steps", "1", "--save", model]
        self.refuse(2, "counts 1 releases of a run whose state is missing: give another", *save)
        for kept in (lines[:1], lines[:2]):  # the header; and how many units there are
            with open(ledger, "wb") as file:
                file.write(b"".join(kept))
            self.refuse(1, "to resume from: give --save instead", "--resume", model)
            self.refuse(2, "of other training", *save, "--sampling", "fixed_size")
            self.succeed(*save)
            self.assertEqual(charged(ledger), 1)
            for path in (model, state_of(model)):
                os.remove(path)
        with open(ledger, "wb") as file:
            file.write(lines[0][:20])
        self.refuse(2, "counts nothing: remove it", *save)


class Names(Case):
    """What happens to a name that is in use, was used, or cannot be written."""

    def test_a_name_is_trained_by_one_process_at_a_time(self):
        model = self.path("m")
        for name in (model, state_of(model)):  # train() holds its own name, which may be the state's
            with held(name):
                before = self.contents()
                self.refuse(1, "another training uses", *NOISY, "--steps", "2", "--save", model)
                self.assertEqual(before, self.contents())
        self.succeed(*NOISY, "--steps", "2", "--save", model)
        self.assertEqual(["m", "m.ledger", "m.state"], sorted(os.listdir(self.folder)))
        with held(model):
            before = self.contents()
            self.refuse(1, "another training uses", "--resume", model, *ALONE, "--steps", "4")
            self.assertEqual(before, self.contents())
        self.succeed("--resume", model, *ALONE, "--steps", "4")

    def test_the_lock_file_of_a_killed_process_locks_nothing(self):
        with open(self.path("m.lock"), "wb"):
            pass
        self.succeed(*NOISY, "--steps", "2", "--save", self.path("m"))
        self.assertFalse(os.path.exists(self.path("m.lock")))

    def test_a_ledger_in_use_by_another_run_is_not_taken(self):
        model = self.path("m")
        self.succeed(*NOISY, "--steps", "1", "--save", model)
        for path in (model, state_of(model)):
            os.remove(path)
        with open(model + ".ledger", "r+b") as file:
            file.truncate(len(file.readline()))
            run_byte = 1 + int("b" * 15, 16)
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, run_byte, 1, 0))
            self.refuse(1, "is in use by another run", *NOISY, "--steps", "1", "--save", model)
        self.assertEqual(["m.ledger"], os.listdir(self.folder))

    def test_what_a_resumed_run_changes_is_told_and_so_is_that_nothing_is_left(self):
        model = self.path("m")
        self.succeed(*NOISY, "--steps", "2", "--save", model)
        out = self.succeed("--resume", model, *ALONE, "--quiet")
        self.assertEqual("nothing left to do: resumed at step 2 of 2", out.splitlines()[0])
        out = self.succeed("--resume", model, *ALONE, "--quiet", "--steps", "3", "--lr", "0.1", "--lr-schedule",
                           "cosine", "--warmup", "1", "--momentum", "0.5", "--physical-batch", "16")
        for change in ("learning rate is 0.1 instead of 0.5", 'schedule is "cosine" instead of "constant"',
                       "warmup is 1 instead of 0", "momentum is 0.5 instead of 0.9", "steps is 3 instead of 2",
                       "physical batch is 16 instead of not set"):
            self.assertIn(change, out.splitlines()[0])
        self.assertEqual(2, len(out.splitlines()), out)

    def test_a_run_without_its_state_is_told_what_to_do_and_that_helps(self):
        model = self.path("m")
        self.succeed(*NOISY, "--steps", "2", "--save", model)
        os.remove(state_of(model))
        self.refuse(1, "it is a model, and there is no", "--resume", model)
        self.refuse(2, "has no state to continue from: give another name", *NOISY, "--steps", "2", "--save", model)
        os.remove(model)
        self.refuse(1, "counts 2 releases, whose model is lost; begin anew", "--resume", model)
        self.succeed(*NOISY, "--steps", "2", "--ledger", model + ".ledger", "--save", self.path("n"))

    def test_a_run_on_a_ledger_elsewhere_names_it(self):
        first, model = self.path("first"), self.path("m")
        self.succeed(*NOISY, "--steps", "1", "--save", first)
        self.succeed(*NOISY, "--steps", "2", "--ledger", first + ".ledger", "--save", model)
        self.refuse(2, f"give --ledger {first}.ledger", "--resume", model, *ALONE, "--steps", "3")
        self.succeed("--resume", model, *ALONE, "--steps", "3", "--ledger", first + ".ledger")

    def test_the_ledger_that_a_run_on_other_data_left_is_explained(self):
        model = self.path("m")
        self.succeed(*NOISY, "--steps", "1", "--save", model)
        for path in (model, state_of(model)):
            os.remove(path)
        with open(model + ".ledger", "r+b") as file:
            file.truncate(sum(len(file.readline()) for _ in range(2)))
        self.refuse(2, "counts 600 units and the training data have 500: it was left by a run on other data",
                    *["500" if word == "600" else word for word in NOISY], "--steps", "1", "--save", model)

    def test_a_run_that_cannot_save_saves_elsewhere_and_says_where(self):
        model = self.path("m")
        os.mkdir(self.path("m.statistics.json"))
        self.refuse(1, f"it is saved as {model}.rescue", *NOISY, "--steps", "2", "--statistics", "--save", model)
        self.assertEqual(0, read_checkpoint(model + ".rescue")[1]["step"])
        self.assertEqual(0o600, stat.S_IMODE(os.stat(model + ".rescue.state").st_mode))
        self.succeed("--resume", model + ".rescue", *ALONE, "--ledger", model + ".ledger")
        self.assertEqual(2, charged(model + ".ledger"))

    def test_a_page_that_cannot_be_written_is_written_elsewhere(self):
        temporary = {**os.environ, "TMPDIR": self.folder}
        done = run(*NOISY, "--steps", "1", "--quiet", "--json", "/dev/full", env=temporary)
        self.told(done, 1, f"it is saved as {self.path('full.rescue')}")
        with open(self.path("full.rescue"), encoding="utf-8") as file:
            self.assertEqual(1, json.load(file)["privacy"]["releases"])
        done = run(*NOISY, "--steps", "1", "--quiet", "--json", "/dev/full",
                   env={**os.environ, "TMPDIR": self.path("nowhere")})
        self.assertEqual(1, done.returncode)
        self.assertEqual(1, json.loads(done.stdout.split("\n", 1)[1])["privacy"]["releases"])


if __name__ == "__main__":
    main()
