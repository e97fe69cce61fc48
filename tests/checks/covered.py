#!/usr/bin/env python3
"""Every operation and layer that users can call appears in a test, or this fails and names it; and every layer in
tests/checks/both_namespaces.cpp, which shows that its name has one meaning.

The registry of operations (tests/autograd/op_laws_test.cpp) sees what is recorded on a tape; functions made of
other operations, and layers, it does not see: they are found here by their declarations.

usage: covered.py ROOT            functions of autograd/*.h and nn/functional.h, classes of nn layers
       covered.py ROOT --self     checks that a function without a test would be found
"""
import pathlib
import re
import sys

FUNCTION = re.compile(r"^(?:inline )?(?:Var|std::vector<Var>|Ordered|RecurrentResult) (\w+)\(", re.M)
CLASS = re.compile(r"^(?:class|struct) (\w+) (?:final )?: (?:public )?(?:Module|Activation|Lora|Recurrent)", re.M)
# What others are made of: functions by number, and templates whose instances have names.
APART = {"untracked", "unary", "binary", "Activation", "Lora", "RecurrentCell", "RecurrentLayers"}


def declared(root):
    """[(name, where)] of functions and layers."""
    headers = sorted((root / "autograd").rglob("*.h")) + [root / "nn/functional.h"]
    found = [(name, path) for path in headers for name in FUNCTION.findall(path.read_text())]
    layers = sorted((root / "nn").rglob("*.h"))
    found += [(name, path) for path in layers for name in CLASS.findall(path.read_text())]
    return [(name, path) for name, path in found if name not in APART]


def ambiguous(root):
    """Layers that the program with both namespaces does not name."""
    words = set(re.findall(r"\w+", (root / "tests/checks/both_namespaces.cpp").read_text()))
    headers = [path.read_text() for path in sorted((root / "nn").rglob("*.h"))]
    names = [name for text in headers for name in CLASS.findall(text)]
    return [name for name in names if name not in words and name not in APART]


def uncovered(names, tests):
    """Of (name, where), those that no test calls or makes."""
    words = set(re.findall(r"\w+(?=\s*[({<]|\s*\))|nn::\w+", tests))
    words |= {word.split("::")[-1] for word in words}
    words |= {re.sub(r"[123]d$", "", word) for word in words}  # Conv2d is Conv<2>
    return [(name, path) for name, path in names if name not in words]


def main(root, check_itself):
    tests = "\n".join(p.read_text() for p in sorted((root / "tests").rglob("*.cpp")))
    names = declared(root)
    if check_itself:
        invented = ("an_operation_without_a_test", root)
        return 0 if uncovered([*names, invented], tests) == [invented] else 1
    missing = uncovered(names, tests)
    for name, path in missing:
        print(f"{path}: {name} is in no test")
    unnamed = ambiguous(root)
    for name in unnamed:
        print(f"tests/checks/both_namespaces.cpp: {name} is not named")
    return 1 if missing or unnamed or not names else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]), "--self" in sys.argv))
