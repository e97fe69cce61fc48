#!/usr/bin/env python3
"""Runs the training programs as several processes, under the launchers of the MPIs that are there.

Usage: ranks_test.py FIXED_SECRETS FAKE_GPU MNIST TABULAR IMAGES TEXT REWEIGHT MPI... [unittest options]      MPI is openmpi or mpich
"""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import unittest

from programs import Case, charged, read_checkpoint, read_tensors, take_programs

# Root and more ranks than processors are refused by default. One thread, since tests share the processors.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "yes", "OMPI_MCA_hwloc_base_binding_policy": "none",
               "OMP_NUM_THREADS": "1"}
HANGS = 240
CLOSING = re.compile(r"test accuracy (\S+) %   \(ε = (\S+), δ = \S+\)   (\S+) epochs in ")
# Physical batches of 16 rows make blocks of units enough for all ranks.
MNIST = ["--train-size", "300", "--test-size", "1100", "--batch-size", "60", "--physical-batch", "16", "--delta", "1e-3"]
NOISY = [*MNIST, "--noise-multiplier", "1"]


def launched(mpi, ranks, command, before=()):
    """The command line of the program as `ranks` processes; with 0 ranks, without a launcher."""
    return ([f"mpirun.{mpi}", "-n", str(ranks)] if ranks else []) + [*before, *command]


class Ranks(Case):
    def ended(self, command, **options):
        return subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=HANGS, check=False, **options)

    def succeed(self, command):
        done = self.ended(command)
        self.assertEqual((0, ""), (done.returncode, done.stderr), command)
        return done.stdout

    def facts(self, ranks, program, *arguments, mpi=None, fixed=True, gpus=0):
        """The output and the JSON report of a run that keeps its model, with or without secrets that are fixed, with
        so many pretended GPUs."""
        name = self.path(f"{mpi}{ranks}{len(os.listdir(self.folder))}")
        before = ["env", "LD_PRELOAD=" + FIXED_SECRETS] if fixed else []
        if gpus > 0:
            before += ["env", "SOTTO_CUDA_LIBRARY=" + FAKE_GPU, f"SOTTO_PRETENDED_GPUS={gpus}"]
        out = self.succeed(launched(mpi or MPIS[0], ranks, [*program, *arguments, "--json", name + ".json"], before))
        with open(name + ".json", encoding="utf-8") as file:
            return out, json.load(file)

    def started(self, mpi, ranks, *arguments):
        """A run that shows each step; returns it after the third."""
        process = subprocess.Popen(launched(mpi, ranks, [PROGRAMS["mnist"], *arguments, "--eval-every", "1"]),
                                   env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        seen = b""
        while seen.count(b"epoch ") < 3:  # lines, or a bar: Open MPI's launcher gives ranks a terminal
            more = os.read(process.stdout.fileno(), 4096)
            self.assertTrue(more, seen)
            seen += more
        return process


def processes_with(word):
    """The processes of `mnist` among whose arguments is this one, the first started first."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[0] == PROGRAMS["mnist"] and word in words:
            found.append(int(number))
    return sorted(found)


def numbers(tensors):
    return {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (_, _, data) in tensors.items()}


class Training(Ranks):
    def test_a_private_training_has_the_same_bits_and_one_report_for_every_number_of_ranks(self):
        options = [*NOISY, "--steps", "4", "--eval-every", "2", "--clip-groups", "layers", "--ema", "0.5", "--statistics"]
        outs, reports, models = [], [], []
        for mpi, ranks in [(None, 0)] + [(mpi, ranks) for mpi in MPIS for ranks in (2, 3)]:
            model = self.path(f"model{mpi}{ranks}")
            out, report = self.facts(ranks, [PROGRAMS["mnist"]], *options, "--save", model, mpi=mpi)
            outs.append(CLOSING.findall(out))
            reports.append(report)
            models.append((read_tensors(model)[0], charged(model + ".ledger")))
            self.assertEqual(4, read_checkpoint(model)[1]["step"])
            self.assertEqual(read_tensors(model)[0].keys(), models[0][0].keys())
        for out, report, model in zip(outs[1:], reports[1:], models[1:]):
            self.assertEqual(models[0], model)
            for key in ("test_accuracy", "confusion", "norms"):
                self.assertEqual(reports[0][key], report[key], key)
            self.assertEqual(reports[0]["privacy"]["epsilon"], report["privacy"]["epsilon"])
            for one, several in zip(reports[0]["points"], report["points"]):
                self.assertAlmostEqual(one["loss"], several["loss"], 5)
                self.assertEqual({**one, "loss": 0}, {**several, "loss": 0})
            self.assertEqual(1, len(out))
            self.assertIn("forward", [phase["name"] for phase in report["phases"]])  # on rank 0
            self.assertEqual(outs[0], out)

    def test_the_report_has_two_lines_about_communication_and_the_details(self):
        page = self.path("page.html")
        out, report = self.facts(2, [PROGRAMS["mnist"]], *NOISY, "--steps", "2", "--report", page)
        told = report["communication"]
        self.assertEqual(2, told["ranks"])
        self.assertEqual("2 ranks on 1 host, 1 thread each", told["lines"][0])
        self.assertIn("\n" + told["lines"][0] + "\n", out)
        self.assertRegex(told["lines"][1], r"^rank 0 sent \S+ kB and received \S+ kB for each step, and waited")
        sums = next(place for place in told["places"] if place["name"] == "clipped sums")
        # Half of the f64 sums of 26,010 weights go to the other rank, in each of two steps.
        self.assertAlmostEqual(2 * 26010 * 8 / 2, sums["bytes_sent"], delta=0.1 * 26010 * 8)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        for line in told["lines"]:
            self.assertIn(line, text)
        self.assertIsNone(self.facts(1, [PROGRAMS["mnist"]], *NOISY, "--steps", "1")[1]["communication"])

    def test_an_ordinary_training_is_the_same_but_for_rounding(self):
        models = []
        for ranks in (0, 2):
            model = self.path(f"plain{ranks}")
            _, report = self.facts(ranks, [PROGRAMS["mnist"]], *MNIST[:-2], "--no-privacy", "--steps", "5", "--save", model)
            models.append((numbers(read_tensors(model)[0]), report["points"][-1]["loss"]))
        self.assertAlmostEqual(models[0][1], models[1][1], 4)
        for name, weights in models[0][0].items():
            for one, several in zip(weights, models[1][0][name]):
                self.assertAlmostEqual(one, several, 4, name)

    def test_processes_with_gpus_train_what_one_trains_but_for_rounding(self):
        few = ["--train-size", "80", "--test-size", "10", "--batch-size", "16", "--physical-batch", "8"]
        noisy = [*few, "--delta", "1e-3", "--noise-multiplier", "1"]
        for options in (noisy, [*noisy, "--cuda-graph"], [*few, "--no-privacy"]):
            models = []
            for mpi, ranks in [(None, 0)] + [(mpi, 2) for mpi in MPIS]:
                model = self.path(f"gpus{mpi}{ranks}{len(options)}")
                self.facts(ranks, [PROGRAMS["mnist"]], *options, "--steps", "2", "--device", "cuda", "--save", model,
                           mpi=mpi, gpus=2)
                models.append(numbers(read_tensors(model)[0]))
                if "--no-privacy" not in options:
                    self.assertEqual(2, charged(model + ".ledger"))
            for several in models[1:]:
                for name, weights in models[0].items():
                    for one, other in zip(weights, several[name]):
                        self.assertAlmostEqual(one, other, 4, name)
            # Two processes go on with what one saved.
            more = self.path(f"gpusNone0{len(options)}")
            self.facts(2, [PROGRAMS["mnist"]], "--resume", more, "--steps", "3", "--device", "cuda", gpus=1)
            self.assertEqual(3, read_checkpoint(more)[1]["step"])

    def test_every_program_trains_with_its_options(self):
        few = ["--noise-multiplier", "2", "--delta", "1e-3", "--steps", "2", "--batch-size", "40", "--train-size", "160",
               "--test-size", "600", "--physical-batch", "16"]
        weighed = ["--clean", "40", "--clean-batch", "20", "--wrong-labels", "0.3"]
        users = self.path("users.csv")
        with open(users, "w", encoding="utf-8") as file:
            file.write("x,who,y\n" + "".join(f"{k % 7 / 7:.3f},u{k % 40},{'yes' if k % 3 else 'no'}\n" for k in range(200)))
        schema = self.path("schema.json")
        with open(schema, "w", encoding="utf-8") as file:
            json.dump({"columns": [{"name": "x", "kind": "number", "min": 0, "max": 1}, {"name": "who", "kind": "user"},
                                   {"name": "y", "kind": "label", "categories": ["no", "yes"]}]}, file)
        mnist, tabular, images, text, reweight = ([PROGRAMS[name], *command] for name, command in (
            ("mnist", []), ("tabular", ["train"]), ("images", ["train"]), ("text", ["train"]), ("reweight", [])))
        # What is compared, and the units of several rows go to ranks by whole physical batches.
        cases = [(mnist, [*NOISY, "--steps", "2", "--compare", "--adaptive-clip-quantile", "0.5"], "test_accuracy"),
                 (mnist, [*NOISY, "--steps", "2", "--memory-limit", "12MB"], "test_accuracy"),
                 (tabular, few, "test_accuracy"),
                 (tabular, ["--data", users, "--schema", schema, "--noise-multiplier", "2", "--delta", "1e-3", "--steps",
                            "2", "--batch-size", "10", "--physical-batch", "10"], "test_accuracy"),
                 (images, [*few, "--size", "8", "--model", "cnn", "--views", "2", "--shift", "2"], "test_accuracy"),
                 (text, [*few, "--hidden", "8", "--task", "generate", "--model", "gru"], "test_nats_per_character"),
                 (reweight, [*few, *weighed, "--method", "gate"], "test_accuracy"),
                 (reweight, [*few, *weighed, "--method", "network", "--compare"], "test_accuracy")]
        for program, arguments, measure in cases:
            alone = self.facts(0, program, *arguments)[1]
            several = self.facts(2, program, *arguments)[1]
            for key in (measure, "norms", "confusion", "generated_text", "results"):
                self.assertEqual(alone[key], several[key], (program, key))
            self.assertEqual(alone["privacy"]["unit"], several["privacy"]["unit"])


class Stopping(Ranks):
    def check_stopped(self, mpi, ranks, send, model):
        process = self.started(mpi, ranks, *NOISY, "--steps", "100000", "--save-every", "100000", "--save", model)
        send(processes_with(model))
        out, _ = process.communicate(timeout=HANGS)
        steps = read_checkpoint(model)[1]["step"]
        self.assertIn(f"stopped by a signal after step {steps} of 100000; continue with --resume {model}", out)
        self.assertNotEqual(0, process.returncode)
        return steps

    def test_a_signal_to_any_rank_stops_all_after_a_step_and_any_number_goes_on(self):
        for mpi, rank, number in zip(MPIS, (1, 0), (signal.SIGUSR1, signal.SIGTERM)):
            model = self.path("stopped" + mpi)
            steps = self.check_stopped(mpi, 2, lambda ranks: os.kill(ranks[rank], number), model)
            for ranks in (3, 1):
                steps += 2
                self.succeed(launched(mpi, ranks, [PROGRAMS["mnist"], "--resume", model, "--steps", str(steps)]))
                self.assertEqual(steps, read_checkpoint(model)[1]["step"])
                self.assertEqual(steps, charged(model + ".ledger"))

    def test_one_process_stops_at_the_first_signal_too(self):
        model = self.path("alone")
        self.check_stopped(MPIS[0], 0, lambda ranks: os.kill(ranks[0], signal.SIGUSR1), model)

    def test_a_launcher_passes_SIGUSR1_on(self):
        for mpi in MPIS:
            model = self.path("passed" + mpi)
            process = self.started(mpi, 2, *NOISY, "--steps", "100000", "--save", model)
            process.send_signal(signal.SIGUSR1)
            out, _ = process.communicate(timeout=HANGS)
            self.assertIn(f"stopped by a signal after step {read_checkpoint(model)[1]['step']} of", out)


class Refusals(Ranks):
    def check_told_once(self, command, message, **options):
        before = sorted(os.listdir(self.folder))
        done = self.ended(command, **options)
        self.assertNotEqual(0, done.returncode, command)
        self.assertEqual(1, len([line for line in done.stderr.splitlines() if message in line]), done.stderr)
        self.assertEqual(before, sorted(os.listdir(self.folder)))
        return done

    def test_a_wrong_option_is_told_once(self):
        for mpi in MPIS:
            self.check_told_once(launched(mpi, 2, [PROGRAMS["mnist"], "--epsilon", "0"]), "sotto-mnist: --epsilon")
            done = self.check_told_once(launched(mpi, 2, [PROGRAMS["mnist"], *NOISY, "--no-privacy", "--steps", "1"]),
                                        "sotto-mnist: --no-privacy")
            self.assertEqual("", done.stdout)
        self.check_told_once(launched(MPIS[0], 2, [PROGRAMS["mnist"], "--resume", self.path("none")]),
                             "sotto-mnist: there is no " + self.path("none.state") + " to resume from")

    def test_an_option_of_one_rank_alone_is_told_once(self):
        for mpi in MPIS:
            command = launched(mpi, 1, [PROGRAMS["mnist"], *NOISY, "--lr", "1", ":", "-n", "1", PROGRAMS["mnist"], *NOISY,
                                        "--lr", "2"])
            done = self.check_told_once(command, "sotto-mnist: command line: ")
            self.assertRegex(done.stderr, r'--lr 2" on rank 1, and .*--lr 1" on rank 0')

    def test_data_that_one_rank_lacks_or_has_otherwise_are_told_once(self):
        text = [PROGRAMS["text"], "train", "--data", "lines.txt", "--task", "generate", "--steps", "1", "--batch-size", "9"]
        for name, lines in (("a", 40), ("b", 40), ("c", 41)):
            os.mkdir(self.path(name))
            with open(self.path(name, "lines.txt"), "w", encoding="utf-8") as file:
                file.write("abc\n" * lines)
        os.remove(self.path("b", "lines.txt"))
        for mpi in MPIS:
            for other, message in (("b", "sotto-text: rank 1 on "), ("c", "sotto-text: --data: not the same on rank 1")):
                self.check_told_once(launched(mpi, 1, [*text, ":", "-n", "1", "-wdir", self.path(other), *text],
                                              ["-wdir", self.path("a")]), message)

    def test_what_several_ranks_do_not_do_is_refused(self):
        self.check_told_once(launched(MPIS[0], 2, [PROGRAMS["mnist"], *MNIST[:-2], "--no-privacy", "--memory-limit",
                                                   "100MiB"]), "sotto-mnist: --memory-limit: several processes need --precision")

    def test_a_failure_of_one_rank_in_training_is_told_once(self):
        for mpi in MPIS:
            done = self.ended(launched(mpi, 2, [PROGRAMS["mnist"], *NOISY, "--steps", "1", "--json", "/dev/full"]))
            self.assertNotEqual(0, done.returncode)
            self.assertEqual(1, done.stderr.count("/dev/full"), done.stderr)
            self.assertRegex(done.stderr, r"rank 0 of 2 on \S+: .*/dev/full")


FIXED_SECRETS, FAKE_GPU, *paths = take_programs(7)
PROGRAMS = dict(zip(("mnist", "tabular", "images", "text", "reweight"), paths))
MPIS = [word for word in sys.argv[1:] if word in ("openmpi", "mpich")]
sys.argv[1:] = [word for word in sys.argv[1:] if word not in MPIS]
if __name__ == "__main__":
    unittest.main()
