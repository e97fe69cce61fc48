#!/usr/bin/env python3
"""Tests the scripts that run on a machine with a GPU, where there is none, on programs that are scripts themselves.

Usage: gpu_script_test.py [unittest options]
"""
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).parent
# One that tells the clocks goes on for ever.
SMI = """case "$*" in *' -l 1') echo 1980 MHz; exec sleep 1000 ;; *compute_cap*) echo 9.0 ;; esac"""
MEASURED = """echo '{"what": "add", "dtype": "f32", "microseconds": 10}'"""


class Scripts(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)
        self.tools = self.folder / "tools"
        self.tool("nvidia-smi", SMI)
        self.results, self.archive = self.folder / "results", self.folder / "out" / "slot.tar.gz"

    def tool(self, name, text):
        self.tools.mkdir(exist_ok=True)
        (self.tools / name).write_text("#!/bin/sh\n" + text)
        (self.tools / name).chmod(0o755)

    def call(self, script, *arguments, **environment):
        known = {"RESULTS": str(self.results), "OUT": str(self.archive.parent), "PATH": f"{self.tools}:{os.environ['PATH']}"}
        return subprocess.run(["sh", script, *arguments], env=os.environ | known | environment, capture_output=True,
                              text=True, check=False, timeout=300)


class Slot(Scripts):
    def setUp(self):
        super().setUp()
        self.bundle = self.folder / "a bundle"
        self.bundle.mkdir()
        for script in ("gpu_slot.sh", "gpu_results.py"):
            shutil.copy(SCRIPTS / script, self.bundle)
        shutil.copy(SCRIPTS.parent / "benchmarks/gpu_cases.txt", self.bundle)
        (self.bundle / "commit.txt").write_text("one\n")
        (self.bundle / "units.txt").write_text("pool test_pool [#pool_test]\ngemm test_gemm [#gemm_test]\n")
        (self.bundle / "cases").mkdir()
        for name in ("bin/test_core", "bin/test_pool", "bin/test_gemm", "bin/conformance", "bin/bench_gpu",
                     "bin/bench_steps"):
            self.program(name, "exit 0")

    def program(self, name, text):
        """A program of the bundle; each run adds a line to NAME.runs."""
        path = self.bundle / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho run >>'{path}.runs'\n{text}\n")
        path.chmod(0o755)

    def runs(self, name):
        log = self.bundle / f"{name}.runs"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def slot(self, *arguments, **environment):
        return self.call(self.bundle / "gpu_slot.sh", *arguments, **environment)

    def statuses(self):
        with tarfile.open(self.archive) as archive:
            lines = archive.extractfile("./steps.txt").read().decode().splitlines()
        self.assertEqual(len(lines), len({line.split()[0] for line in lines}))
        return {name: status for name, status, _ in (line.split() for line in lines)}

    def test_wrong_arguments_are_refused_before_anything_is_done(self):
        slot = "a part and a number of seconds are wanted"
        for script, arguments, environment, reason in (
                ("gpu_slot.sh", (), {}, slot), ("gpu_slot.sh", ("20",), {}, slot),
                ("gpu_slot.sh", ("tests", "bench"), {}, "SECONDS is no number: bench"),
                ("gpu_slot.sh", ("tests", "0"), {}, "SECONDS is no number: 0"),
                ("gpu_slot.sh", ("tests", "keep", "20"), {}, "no part is called keep"),
                ("gpu.sh", ("ten",), {}, "SECONDS is no number: ten"), ("gpu.sh", ("6x",), {}, "SECONDS is no number: 6x"), ("gpu.sh", ("1", "2"), {}, "usage: gpu.sh"),
                ("gpu.sh", (), {"PATH": "/usr/bin:/bin"}, "nvidia-smi finds no GPU"),
                ("gpu_bundle.sh", (), {}, "usage: gpu_bundle.sh"), ("gpu_bundle.sh", ("--help",), {}, "usage: gpu_bundle.sh"),
                ("gpu_bundle.sh", (str(self.results),), {"SOTTO_BUILD": "/nowhere"}, "SOTTO_BUILD was not built: /nowhere"),
                ("gpu_bundle.sh", (str(self.results),), {"SOTTO_MNIST": "/nowhere"}, "SOTTO_MNIST has no train-images: /nowhere")):
            done = self.call(SCRIPTS / script, *arguments, **environment)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(reason, done.stderr)
            self.assertFalse(self.results.exists())

    def test_a_second_call_does_what_the_first_one_did_not(self):
        self.program("bin/test_gemm", "echo 'error: 3 is not 4'; exit 7")
        done = self.slot("tests", "60")
        self.assertEqual(done.returncode, 1)
        self.assertIn("gemm failed(7)", done.stdout)
        self.assertIn("1:error: 3 is not 4", done.stdout)
        self.assertEqual((self.statuses()["pool"], self.statuses()["gemm"]), ("passed", "failed(7)"))
        self.program("bin/test_gemm", "exit 0")
        self.assertEqual(self.slot("tests", "bench", "60").returncode, 0)
        self.assertEqual((self.runs("bin/test_pool"), self.runs("bin/test_gemm")), (1, 2))
        self.assertEqual((self.statuses()["gemm"], self.statuses()["bench"]), ("passed", "passed"))
        (self.bundle / "commit.txt").write_text("another\n")
        self.slot("bench", "60")
        self.assertEqual(self.statuses(), {"bench": "passed", "bench_tf32": "passed"})
        self.assertEqual(self.runs("bin/bench_gpu"), 4)

    def test_a_program_that_hangs_is_stopped_and_the_others_count(self):
        self.program("bin/bench_gpu", "trap '' TERM\nwhile :; do sleep 1; done")
        done = self.slot("tests", "bench", "20")
        self.assertEqual((self.statuses()["bench"], self.statuses()["gemm"]), ("stopped", "passed"))
        self.assertIn("bench stopped", done.stdout)
        self.assertEqual(done.returncode, 1)

    def test_a_program_that_cannot_be_ended_lets_the_call_end(self):
        self.tool("timeout", """case "$*" in *bench_gpu*) exec sleep 250 ;; *) exec /usr/bin/timeout "$@" ;; esac""")
        done = self.slot("tests", "bench", "20")
        self.assertIn("not all of tests bench was done", done.stdout)
        self.assertEqual(self.statuses()["gemm"], "passed")

    def test_the_archive_is_written_after_each_part(self):
        self.program("bin/bench_gpu", f"tar xzOf '{self.archive}' ./steps.txt >'{self.folder}/seen'\n" + MEASURED)
        done = self.slot("tests", "bench", "60")
        self.assertIn("| add | f32 | 10 |", done.stdout)
        self.assertIn("gemm passed", (self.folder / "seen").read_text())
        self.assertEqual(self.statuses()["bench"], "passed")
        with tarfile.open(self.archive) as archive:
            self.assertEqual(archive.extractfile("./clocks_bench.csv").read(), b"1980 MHz\n")
            self.assertIn("| gemm | passed |", archive.extractfile("./results.md").read().decode())

    def test_steps_that_find_no_time_are_listed(self):
        done = self.slot("tests", "profile", "train", "1")
        self.assertEqual(set(self.statuses().values()), {"skipped"})
        for line in ("pool skipped", "there is no libkernel_times.so", "there is no mnist"):
            self.assertIn(line, done.stdout)
        self.assertEqual(self.runs("bin/test_pool"), 0)
        self.assertEqual(done.returncode, 1)

    def test_networks_are_those_of_the_table(self):
        self.program("bin/bench_steps", f'echo "$*" >>"{self.folder}/seen"')
        self.slot("small", "large", "precisions", "60")
        cases = [line.split() for line in (self.bundle / "gpu_cases.txt").read_text().splitlines() if line[0] != "#"]
        lines = (self.folder / "seen").read_text().splitlines()
        for model, batch, precision, _, *options in cases:
            case = f"--models {model} --batches {batch} --precision {precision} "
            self.assertEqual(len([line for line in lines if case in line and line.split()[-1:] == (options or ["0"])]), 1, case)
        captured = [line for line in lines if line.endswith("--capture") and "mnist" not in line]
        self.assertEqual(len(lines), len(cases) + len(captured))
        for name in ("networks_gpt2-1024_8_f32", "networks_wrn16_256_bf16_captured"):
            self.assertEqual(self.statuses()[name], "passed")

    def test_nothing_else_is_done_where_no_gpu_is_used(self):
        self.program("bin/conformance", "echo no driver; exit 2")
        done = self.slot("smoke", "sanitize", "60")
        self.assertIn("no driver\nno GPU is used: nothing else is done", done.stdout)
        self.assertEqual(self.statuses()["gpu_is_used"], "failed(2)")
        self.assertNotIn("sanitize", self.statuses())

    def test_a_unit_without_cases_fails(self):
        self.program("bin/test_pool", "echo No test cases matched; exit 0")
        self.slot("tests", "60")
        self.assertEqual(self.statuses()["pool"], "failed(nothing)")


PROGRAM = r"""#include <cstdio>
const char* matching();
int main() { std::puts(matching()); }
"""
LIBRARY = r"""const char* matching() { return "1 matching test case"; }
"""


class Bundle(Scripts):
    """Of a build whose programs are all one, with a library of its own."""

    def setUp(self):
        super().setUp()
        self.build, self.packed = self.folder / "build", self.folder / "packed"
        listed = subprocess.run(["python3", SCRIPTS / "list_tests.py", SCRIPTS.parent, "--sources"], capture_output=True, text=True,
                                check=True).stdout
        names = {f"tests/test_{line.split()[1]}" for line in listed.splitlines()}
        names |= {"tests/conformance/conformance", "tests/benchmarks/bench_gpu", "tests/benchmarks/bench_steps", "samples/sotto-mnist"}
        for name in names:
            (self.build / name).parent.mkdir(parents=True, exist_ok=True)
        self.compile(LIBRARY, "libnowhere.so", "-shared", "-fPIC")
        self.compile(PROGRAM, "program", "-L.", "-lnowhere", "-Wl,-rpath," + str(self.build))
        for name in names:
            os.link(self.build / "program", self.build / name)
        shutil.copy(self.build / "libnowhere.so", self.build / "libsotto_cuda.so")

    def compile(self, text, name, *options):
        subprocess.run(["c++", "-o", name, "-x", "c++", "-", *options], input=text, cwd=self.build, text=True, check=True)

    def bundle(self, **environment):
        return self.call(SCRIPTS / "gpu_bundle.sh", str(self.packed), SOTTO_BUILD=str(self.build), **environment)

    def test_holds_programs_and_libraries_and_cases(self):
        data = self.folder / "data"
        data.mkdir()
        (data / "train-images-idx3-ubyte.gz").write_text("images")
        (self.packed / "wheel").mkdir(parents=True)
        (self.packed / "wheel/opacus-1-any.whl").write_text("wheel")
        done = self.bundle(SOTTO_MNIST=str(data))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no CUPTI here", done.stderr)
        with tarfile.open(self.packed / "bundle.tar.gz") as archive:
            names = set(archive.getnames())
            units = archive.extractfile("./units.txt").read().decode()
        self.assertLessEqual({"./bin/test_kernels_cuda", "./bin/conformance", "./lib/libnowhere.so", "./lib/libsotto_cuda.so",
                              "./cases/op", "./gpu_slot.sh", "./peers.py", "./wheel/opacus-1-any.whl",
                              "./mnist/train-images-idx3-ubyte.gz"}, names)
        self.assertFalse([name for name in names if name.startswith(("./lib/libc.", "./lib/libstdc++"))])
        self.assertIn("gpu_ops test_kernels_cuda [#gpu_ops_test]\n", units)

    def test_what_would_fail_on_the_other_machine_fails_here(self):
        self.assertIn("a program asks for GLIBC_2.", self.bundle(SOTTO_OLDEST="GLIBC_2.2").stderr)
        self.compile(LIBRARY.replace("1", "0"), "libnowhere.so", "-shared", "-fPIC")
        self.assertIn("has no case of attention", self.bundle().stderr)
        (self.build / "libnowhere.so").unlink()
        done = self.bundle()
        self.assertIn("nothing here provides libnowhere.so", done.stderr)
        self.assertNotEqual(done.returncode, 0)
        self.assertFalse(self.packed.exists())

    def test_gpu_sh_runs_all_parts_of_it_here(self):
        done = self.call(SCRIPTS / "gpu.sh", "100", SOTTO_BUILD=str(self.build))
        lines = (self.build / "results/steps.txt").read_text()
        for name in ("devices", "gpu_ops", "conformance_cases_bf16", "bench", "peers"):
            self.assertIn(f"{name} passed", lines, done.stdout)
        self.assertIn("| devices | passed |", (self.build / "results/results.md").read_text())
        self.assertTrue((self.build / "slot.tar.gz").exists())


if __name__ == "__main__":
    unittest.main()
