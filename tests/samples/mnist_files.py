#!/usr/bin/env python3
"""Checks which of the files of the sample `mnist` may be published, and which are secret.

Usage: mnist_files.py PATH_OF_MNIST [unittest options]
"""

import json
import os
import stat

from mnist_runs import ALONE, NOISY, PLAIN, Case, main, run
from programs import charged, read_checkpoint, read_tensors, state_of


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
            self.assertEqual(tensor, state["average.average." + name])
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

    def test_a_checkpoint_from_when_it_was_one_file_with_the_model_goes_on(self):
        model = self.path("model")
        self.succeed(*NOISY, "--steps", "2", "--save", model)
        os.replace(state_of(model), model)
        os.chmod(model, 0o644)
        self.succeed("--resume", model, *ALONE, "--steps", "4")
        self.assertEqual(read_checkpoint(model)[1]["step"], 4)
        self.assertEqual(self.mode("model.state"), 0o600)
        self.assertEqual(set(read_tensors(model)[1]), {"sotto.privacy", "sotto.xxh64"})
        self.assertEqual(charged(model + ".ledger"), 4)

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


if __name__ == "__main__":
    main()
