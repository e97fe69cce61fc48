#!/usr/bin/env python3
"""Runs compare_peers.py and compare_builds.py with one tiny case, to see that they work; no time is judged.

Usage: compare_test.py BUILD [unittest options]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).parent
BUILD = sys.argv.pop(1)
TINY = ("--models", "logreg", "--batches", "4", "--rounds", "1", "--seconds", "0", "--threads", "1")

# In the place of a Python with peers.py: one network computes something else, one mode fails, one package is missing.
PEERS = """#!/usr/bin/env python3
import json, sys
def say(**line): print(json.dumps(line))
if "--rounded" in sys.argv:
    say(model="logreg", same=True, **{"our bf16 error": 0.01, "bf16 error": 0.02})
    say(model="ffnn", same=False, why="loss")
times = {"ordinary": 400, "channels_last": 300, "hooks": 900, "ghost": 700}
failed = {"ew": "no rule", "fastdp": "No module named 'fastDP'"}
for case in open(sys.argv[sys.argv.index("--cases") + 1]).read().split("\\n"):
    model, batch, precision, modes = (case.split() + [""] * 4)[:4]
    for mode in modes.split(",") if modes else []:
        found = {"ms_per_step": times[mode]} if mode in times else {"failed": failed[mode]}
        say(by="torch" if mode in ("ordinary", "channels_last") else "opacus", version="1", model=model, mode=mode, batch=batch,
            precision=precision, **found)
"""


def run(script, *arguments):
    return subprocess.run([sys.executable, FOLDER / script, *arguments], capture_output=True, text=True, check=False)


class Commands(unittest.TestCase):
    def test_our_steps_are_compared_with_peers_that_are_here(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("compare_peers.py", BUILD, *TINY, "--peer-modes", "ordinary", "--anyway", "--results", folder)
            self.assertEqual(done.returncode, 0, done.stderr)
            [stored] = pathlib.Path(folder).glob("*.json")
            self.assertEqual([(row["model"], row["precision"]) for row in json.loads(stored.read_text())["rows"]],
                             [("logreg", "f32"), ("logreg", "bf16")])
            self.assertIn("logistic regression", stored.with_suffix(".svg").read_text())
        rows = [line.split(" | ") for line in done.stdout.splitlines()]
        self.assertIn("private / ordinary", rows[0])
        for precision, row in zip(("f32", "bf16"), rows[2:4]):
            self.assertTrue(row[0].startswith("| logreg"))
            self.assertEqual((len(row), row[1:3]), (len(rows[0]), ["4", precision]))
        self.assertEqual("PyTorch, ms" in rows[0], "no PyTorch" not in done.stderr, done.stderr)

    def test_peers_that_differ_fail_or_are_missing_are_named_and_the_others_are_timed(self):
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "python"
            python.write_text(PEERS)
            python.chmod(0o755)
            done = run("compare_peers.py", BUILD, *TINY, "--models", "logreg,ffnn", "--python", python, "--anyway")
        self.assertEqual(done.returncode, 0, done.stderr)
        for named in ("ffnn: PyTorch's network is not timed, it is not ours: loss", "logreg, ew: no rule", "fastdp: No module named"):
            self.assertEqual(done.stderr.count(named), 1, done.stderr)
        titles, _, f32, bf16, other, *_ = [line.split(" | ") for line in done.stdout.splitlines()]
        self.assertEqual([row[titles.index("Opacus, ms")] for row in (f32, bf16, other)], ["700.0", "-", "-"])
        self.assertEqual([row[titles.index("PyTorch, ms")] for row in (f32, bf16, other)], ["300.0", "300.0", "-"])
        self.assertEqual(bf16[titles.index("error, PyTorch / private")], "2.00")

    def test_two_builds_are_compared(self):
        done = run("compare_builds.py", BUILD, BUILD, *TINY, "--precision", "f32", "--anyway")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([line.rsplit(" | ", 1)[0].count("|") for line in done.stdout.splitlines()[2:]], [6] * 4)

    def test_what_cannot_be_asked_is_refused(self):
        for options, why in (((), "BUILD or --pages"), ((BUILD, "--peer-modes", "fast"), "--peer-modes: not known: fast"),
                             ((BUILD, "--precision", "f64"), "--precision: not known: f64")):
            done = run("compare_peers.py", *options)
            self.assertEqual((done.returncode, why in done.stderr), (2, True), done.stderr)
        done = run("compare_peers.py", "/nowhere", *TINY, "--anyway")
        self.assertIn("/nowhere/tests/benchmarks/bench_steps: No such file", done.stderr.splitlines()[-1])
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
