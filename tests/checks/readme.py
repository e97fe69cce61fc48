"""The C++ blocks of these pages are marked parts of sources that are compiled: readme.py SOURCE_FOLDER."""
import pathlib
import re
import sys

PARTS = (
    ("README.md", "tests/checks/readme_example.cpp", ("README",)),
    ("docs/how-to/write-a-layer-or-op.md", "tests/autograd/custom_ops_test.cpp", ("LAYER", "OPERATION", "CHECKS")),
)

if len(sys.argv) < 2:
    sys.exit(__doc__)
root = pathlib.Path(sys.argv[1])
for page, source, marks in PARTS:
    blocks = re.findall(r"```cpp\n(.*?)```", (root / page).read_text(encoding="utf-8"), re.S)
    code = (root / source).read_text(encoding="utf-8")
    # What stands between the two lines "// MARK", without the indentation of the second.
    parts = [re.split(rf" *// {mark}\n", code)[1] for mark in marks]
    if blocks != parts:
        sys.exit(f"{page}: its C++ blocks are not the parts of {source} between {marks}")
