#!/usr/bin/env python3
"""Tests tests/benchmarks/peers.py on the CPU, timing small networks alone: PyTorch's compute the same as ours, and one that does
not is not timed. Where PyTorch cannot be imported, that is left out.

Usage: peers_test.py BENCH_STEPS [unittest options]
"""
import importlib.util
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).parent
STEPS = sys.argv.pop(1)
SMALL = ("gpt2-tiny", "vit-tiny", "resnet-tiny", "mnist", "wrn16")
NETWORKS = ("logreg", "ffnn", "mnist", "cifar10", "embed", "lstm", "resnet18", "wrn16", "vit", "gpt2")
needs_opacus = unittest.skipUnless(importlib.util.find_spec("opacus"), "no Opacus")
needs_torch = unittest.skipUnless(importlib.util.find_spec("torch"), "no PyTorch")


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def header_of(path):
    data = path.read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:end]), end


class Peers(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)

    def write(self, *models, device="cpu", folder=".", precision="f32"):
        command = [STEPS, "--write", self.folder / folder, "--models", ",".join(models), "--device", device, "--precision", precision]
        return json_lines(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def run_peers(self, *cases, options=(), **environment):
        """The status, and the lines: of comparisons, and of timings."""
        (self.folder / "cases.txt").write_text("# a comment\n" + "\n".join(cases) + "\n")
        command = [sys.executable, FOLDER / "peers.py", "--device", "cpu", "--reference", self.folder, "--cases",
                   self.folder / "cases.txt", "--warmup", "1", "--steps", "1", *options]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"} | environment, capture_output=True, text=True,
                              check=False)
        lines = json_lines(done.stdout)
        return done, [line for line in lines if "same" in line], [line for line in lines if "mode" in line]

    def change(self, model, tensor, first):
        """Writes other first numbers into a tensor of a reference."""
        path = self.folder / f"{model}.safetensors"
        header, end = header_of(path)
        with open(path, "r+b") as file:
            file.seek(end + header[tensor]["data_offsets"][0])
            file.write(struct.pack(f"<{len(first)}f", *first))

    def test_what_is_written_holds_every_parameter_its_norm_and_its_sum(self):
        [line] = self.write("gpt2-tiny")
        header, _ = header_of(pathlib.Path(line["file"]))
        facts = header.pop("__metadata__")
        self.assertEqual((float(facts["loss"]), facts["clip_bound"]), (line["loss"], "1"))
        self.assertEqual((header["inputs"]["shape"], header["labels"]["dtype"]), ([8, 16], "I64"))
        shapes = {kind: {name.split("/")[1]: entry["shape"] for name, entry in header.items() if name.startswith(kind + "/")}
                  for kind in ("parameters", "clipped", "norms")}
        self.assertEqual(shapes["parameters"], shapes["clipped"])
        self.assertEqual(shapes["norms"], dict.fromkeys(shapes["parameters"], [1]))
        self.assertEqual(line["parameters"], sum(a * b for a, b in ((*shape, 1)[:2] for shape in shapes["parameters"].values())))

    def test_16_bits_are_written_too_and_are_near_f32(self):
        f32, bf16 = (self.write("mnist", precision=precision)[0]["loss"] for precision in ("f32", "bf16"))
        self.assertNotEqual(f32, bf16)
        self.assertAlmostEqual(f32, bf16, delta=0.01 * f32)

    def test_the_table_of_cases_is_one_that_both_sides_can_read(self):
        cases = [line.split() for line in (FOLDER / "gpu_cases.txt").read_text().splitlines() if not line.startswith("#")]
        self.assertEqual(len(cases), len({tuple(case[:3]) for case in cases}))
        for _, samples, precision, modes, *options in cases:
            self.assertGreater(int(samples), 0)
            self.assertIn(precision, ("bf16", "tf32", "f32"))
            self.assertLessEqual(set(modes.split(",")), {"ordinary", "hooks", "ghost", "compiled"})
            self.assertLessEqual(set(options), {"--capture"})

    def test_what_cannot_be_asked_is_refused(self):
        for options, reason in ((["--modes", "fast"], "--modes: not known: fast"), (["--precision", "f16"], "not known: f16")):
            done, *_ = self.run_peers(options=options)
            self.assertEqual((done.returncode, reason in done.stderr), (2, True), done.stderr)
        (self.folder / "torch.py").write_text("raise ImportError('none here')\n")
        done, *_ = self.run_peers(PYTHONPATH=str(self.folder))
        self.assertEqual((done.returncode, done.stdout), (0, "no PyTorch: none here\n"))

    @needs_torch
    def test_pytorch_computes_the_same_as_ours(self):
        self.write(*SMALL)
        cases = (f"{model} 8 {precision} ordinary" for model in SMALL for precision in ("f32", "bf16"))
        done, same, timed = self.run_peers(*cases)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([(line["model"], line["same"], line["parameters"] - line["our parameters"]) for line in same],
                         [(model, True, 0) for model in SMALL])
        self.assertEqual(len(timed), 2 * len(SMALL))
        for line in timed:
            self.assertGreater(line["ms_per_step"], 0)
            self.assertEqual((line["by"], line["steps"], len(line["ms_halves"])), ("torch", 2, 2))

    @needs_torch
    def test_pytorch_computes_the_same_as_all_networks_of_the_tables(self):
        self.write(*NETWORKS)
        done, same, timed = self.run_peers(options=["--models", ",".join(NETWORKS)])
        self.assertEqual((done.returncode, timed), (0, []), done.stdout + done.stderr)
        self.assertEqual([(line["model"], line["same"]) for line in same], [(model, True) for model in NETWORKS])

    @needs_torch
    @unittest.skipUnless("SOTTO_CUDA_LIBRARY" in os.environ, "no GPU, not even a pretended one")
    def test_pytorch_computes_the_same_as_the_gpus_kernels(self):
        self.write(*SMALL[:-1], device="cuda")
        done, same, _ = self.run_peers(options=["--models", ",".join(SMALL[:-1])])
        self.assertEqual((done.returncode, [line["same"] for line in same]), (0, [True] * 4), done.stdout + done.stderr)

    @needs_torch
    def test_errors_in_bf16_are_those_of_the_sums(self):
        self.write("gpt2-tiny")
        self.write("gpt2-tiny", folder="rounded", precision="bf16")
        _, [line], _ = self.run_peers(options=["--models", "gpt2-tiny", "--rounded", self.folder / "rounded"])
        for name in ("our bf16 error", "bf16 error"):
            self.assertGreater(line[name], 1e-4)
            self.assertLess(line[name], 0.1)
        _, [line], _ = self.run_peers(options=["--models", "gpt2-tiny", "--rounded", self.folder])
        self.assertLess(line["our bf16 error"], 1e-6)

    @needs_torch
    def test_a_network_that_computes_something_else_is_not_timed(self):
        for what, why in (("parameters", "loss"), ("norms", "norms"), ("clipped", "clipped")):
            self.write("gpt2-tiny", "mnist")
            self.change("gpt2-tiny", f"{what}/3.up.weight", [9.0, 9.0])
            done, same, timed = self.run_peers("gpt2-tiny 8 f32 ordinary", "mnist 8 f32 ordinary")
            self.assertEqual((done.returncode, [line["same"] for line in same]), (1, [False, True]))
            self.assertIn(why, same[0]["why"])
            self.assertEqual([line["model"] for line in timed], ["mnist"])

    @needs_torch
    def test_a_reference_of_another_network_or_of_none_is_not_timed(self):
        self.write("gpt2", "vit-tiny", "mnist")
        (self.folder / "gpt2.safetensors").rename(self.folder / "gpt2-tiny.safetensors")
        cut = self.folder / "vit-tiny.safetensors"
        cut.write_bytes(cut.read_bytes()[:20000])
        models = ("gpt2-tiny", "vit-tiny", "resnet-tiny", "logreg", "mnist")
        done, same, timed = self.run_peers(*(f"{model} 8 f32 ordinary" for model in models))
        self.assertEqual((done.returncode, [line["same"] for line in same]), (1, [False] * 4 + [True]))
        for line, why in zip(same, ("Missing key", "buffer", "No such file", "No such file")):
            self.assertIn(why, line["why"])
        self.assertEqual([line["model"] for line in timed], ["mnist"])

    @needs_torch
    def test_images_are_timed_with_channels_last_too_and_nothing_else_is(self):
        self.write("mnist", "logreg")
        *_, timed = self.run_peers("mnist 8 f32 ordinary,channels_last", "logreg 8 f32 ordinary,channels_last")
        self.assertEqual([(line["model"], line["mode"]) for line in timed],
                         [("mnist", "ordinary"), ("logreg", "ordinary"), ("mnist", "channels_last")])

    @needs_torch
    def test_a_peer_that_fails_is_a_line_with_the_reason(self):
        self.write("mnist")
        (self.folder / "opacus.py").write_text("raise ImportError('none here')\n")
        done, _, timed = self.run_peers("mnist 8 f32 ordinary,hooks,ghost", PYTHONPATH=str(self.folder))
        self.assertEqual(done.returncode, 0)
        self.assertEqual([line.get("failed") for line in timed], [None, *["ImportError: none here"] * 2])

    @needs_torch
    @needs_opacus
    def test_private_steps_of_opacus_run(self):
        self.write("gpt2-tiny", "mnist", "resnet-tiny")
        done, _, timed = self.run_peers("gpt2-tiny 8 bf16 ghost", "mnist 8 f32 hooks,ew", "resnet-tiny 8 f32 hooks")
        self.assertEqual(done.returncode, 0)
        self.assertEqual([("failed" in line, line["model"], line["mode"]) for line in timed],
                         [(False, "mnist", "hooks"), (False, "resnet-tiny", "hooks"), (False, "mnist", "ew"),
                          (False, "gpt2-tiny", "ghost")], timed)

    @needs_torch
    @needs_opacus
    def test_a_private_mode_that_clips_otherwise_is_not_timed(self):
        self.write("mnist")
        (self.folder / "sitecustomize.py").write_text("import sys\nsys.path.insert(0, %r)\nimport peer_private\n"
                                                      "peer_private.BOUND = 0.5\n" % str(FOLDER))
        _, same, timed = self.run_peers("mnist 8 f32 hooks", PYTHONPATH=str(self.folder))
        self.assertTrue(same[0]["same"])
        self.assertIn("not the clipped sum", timed[0]["failed"])
        *_, timed = self.run_peers("mnist 8 f32 hooks", options=["--checked"], PYTHONPATH=str(self.folder))
        self.assertNotIn("failed", timed[0])


if __name__ == "__main__":
    unittest.main()
