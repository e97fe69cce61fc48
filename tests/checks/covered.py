#!/usr/bin/env python3
"""Every operation and layer that users can call appears in a test, or this fails and names it; every operation in the
table of random graphs too (tests/support/fuzzed_*.cpp); and every layer in tests/checks/both_namespaces.cpp, which shows
that its name has one meaning.

The registry of operations (tests/autograd/op_laws_test.cpp) sees what is recorded on a tape; functions made of
other operations, and layers, it does not see: they are found here by their declarations.

usage: covered.py ROOT            functions of autograd/*.h, nn/functional.h and nn/layers/*.h, classes of nn layers
       covered.py ROOT --self     checks that a function without a test would be found
"""
import pathlib
import re
import sys

FUNCTION = re.compile(r"^(?:inline )?(?:Var|std::vector<Var>|Ordered|RecurrentResult|RecurrentOutputs) (\w+)\(", re.M)
CLASS = re.compile(r"^(?:class|struct) (\w+) (?:final )?: (?:public )?(?:Module|Activation|Lora|Recurrent)", re.M)
# What others are made of: functions by number, and templates whose instances have names.
APART = {"untracked", "unary", "binary", "Activation", "Lora", "LoraLayer", "PretrainedModel", "RecurrentCell", "RecurrentLayers"}


def found(pattern, headers):
    """[(name, where)] of what the headers declare."""
    names = [(name, path) for path in headers for name in pattern.findall(path.read_text())]
    return [(name, path) for name, path in names if name not in APART]


def functions(root):
    layers = sorted((root / "nn/layers").rglob("*.h"))
    return found(FUNCTION, [*sorted((root / "autograd").rglob("*.h")), root / "nn/functional.h", *layers])


def layers(root):
    return found(CLASS, sorted((root / "nn").rglob("*.h")))


def outside_graphs(names, root):
    """Of (name, where), those that no random graph uses."""
    tables = "\n".join(path.read_text() for path in sorted((root / "tests/support").glob("fuzzed_*.cpp")))
    in_table = set(re.findall(r'\{"(\w+)",', tables))
    return [(name, path) for name, path in names if name not in in_table]


def ambiguous(root):
    """Layers that the program with both namespaces does not name."""
    words = set(re.findall(r"\w+", (root / "tests/checks/both_namespaces.cpp").read_text()))
    # sotto.h does not include the headers of models.
    headers = [path.read_text() for path in sorted((root / "nn").rglob("*.h")) if path.parent.name != "models"]
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
    names = functions(root) + layers(root)
    if check_itself:
        invented = ("an_operation_without_a_test", root)
        found_both = [uncovered([*names, invented], tests), outside_graphs([*functions(root), invented], root)]
        return 0 if found_both == [[invented], [invented]] else 1
    missing = uncovered(names, tests)
    for name, path in missing:
        print(f"{path}: {name} is in no test")
    unfuzzed = outside_graphs(functions(root), root)
    for name, path in unfuzzed:
        print(f"{path}: {name} is in no table of random graphs, tests/support/fuzzed_*.cpp")
    unnamed = ambiguous(root)
    for name in unnamed:
        print(f"tests/checks/both_namespaces.cpp: {name} is not named")
    return 1 if missing or unfuzzed or unnamed or not names else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]), "--self" in sys.argv))
