"""The first program fits a page, trains something, and goes on where it was: first_program_test.py PROGRAM SOURCE."""
import pathlib
import re
import subprocess
import sys
import tempfile

if len(sys.argv) < 3:
    sys.exit(__doc__)
program, source = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
MAX_LINES = 40


def run(folder, told=""):
    done = subprocess.run([program], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == told, done.stderr
    accuracy, epsilon = re.fullmatch(r"accuracy ([\d.]+), epsilon ([\d.]+)\n", done.stdout).groups()
    return float(accuracy), float(epsilon)


assert len(source.read_text().splitlines()) <= MAX_LINES
with tempfile.TemporaryDirectory() as folder:
    first = run(folder)
    assert first[0] > 0.8 and 2.5 < first[1] <= 3, first
    assert sorted(p.name for p in pathlib.Path(folder).iterdir()) == [
        "circle.ledger", "circle.safetensors", "circle.state"]
    ledger = (pathlib.Path(folder) / "circle.ledger").read_text()
    # Nothing is left to train: the model is that of the checkpoint, and nothing more is spent.
    assert run(folder, "sotto: nothing left to do: resumed at step 1000 of 1000\n") == first
    assert (pathlib.Path(folder) / "circle.ledger").read_text().count("reserve") == ledger.count("reserve")
