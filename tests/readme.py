"""The README's C++ block is the marked part of tests/readme_example.cpp: readme.py SOURCE_FOLDER."""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
block = re.search(r"```cpp\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.S)
example = (root / "tests/readme_example.cpp").read_text(encoding="utf-8").split("// README\n")[1]
if block is None or block.group(1) != example:
    sys.exit("README.md: the C++ block is not the marked part of tests/readme_example.cpp")
