#!/usr/bin/env python3
"""Checks that names in comments of headers and in texts of errors exist; prints file:line: what, and fails on any.

In a comment, each word in backticks must be a name in the code of a header. The words beside an operator of a formula
(=, <, >, <=, >=, +, -, *), from three letters on, must be names in the code of the same header or of one that it
includes or mentions, words of the comment at its head, or words of mathematics. In a text of check() or throw, words with an
underscore, as `max_batch_size`, must be names in the code of the library.

usage: comment_names.py ROOT
       comment_names.py ROOT --self     checks that a wrong name of each kind would be found
"""
import pathlib
import re
import sys
import tempfile

FOLDERS = ("core", "kernels", "autograd", "nn", "memory", "multilevel", "dp")
WORD = r"[A-Za-z_]\w*"
NO_CODE = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|^\s*#\s*include[^\n]*|\bnamespace [\w:]+', re.M)
OPERATOR = re.compile(rf"(?:(?<![\w.])({WORD})(?:\[[^\]]*\]|\([^()]*\))?)?[ )](?:=|>=|<=|>|<|\+|\*|-)[ (]+({WORD})?")
ERROR = re.compile(r'\b(?:check\w*|throw)\b(?:[^;"]|"(?:[^"\\\n]|\\.)*")*;')
TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
# What formulas say besides names: functions and letters of mathematics, and English beside an operator.
KNOWN = set("""abs argmax Binomial cos delta exp floor infinity log log_softmax max mean min Phi round softmax sqrt sum tanh
variance alpha beta eps eta gamma lambda sigma theta FNR FPR NaN and are both each false finite its one out the true""".split())
HEAD = re.compile(r"(?:(?://[^\n]*)?\n)*")
SUBSCRIPT = re.compile(r"(sum|mean|\w)_\w*")  # sum_i, x_t
# Keys of file formats, and fields of config.json.
KEYS = {"data_offsets", "sotto_ledger"} | {
    "attention_factor", "high_freq_factor", "low_freq_factor", "model_type", "num_labels", "pad_token_id", "rope_type",
    "short_factor", "sliding_window"}
# Entry points of our libraries, an example's function, a line of CSV files, an option of TensorFlow's.
ELSEWHERE = {"make_instance", "num_updates", "sep", "sotto_cuda_runtime", "sotto_mpi_link"}


def code_names(path):
    return set(re.findall(WORD, NO_CODE.sub("", path.read_text(encoding="utf-8"))))


def names_of_comment(text):
    """The names that a line of a comment says to be some; none of a line of code."""
    if re.match(r" {3,}.*(;|\{\.|\}\)|::)", text):
        return
    for quoted in re.findall(r"`([^`]+)`", text):
        if not quoted.startswith("-"):
            yield from ((name, False) for name in re.findall(WORD, re.sub(r'"[^"]*"', "", quoted)))
    text = re.sub(r"`[^`]+`", "x", text.removeprefix(" - "))  # of a list
    for sides in OPERATOR.findall(re.sub(r"\[[^\[\]]+\]", "[]", text)):  # shapes are words
        yield from ((side, True) for side in sides if len(side) > 2 and side not in KNOWN and not SUBSCRIPT.fullmatch(side))


def findings(root):
    sources = [p for folder in FOLDERS for p in sorted((root / folder).rglob("*")) if p.suffix in {".h", ".cpp", ".cu", ".cuh"}]
    headers = [path for path in sources if path.suffix == ".h"]
    names = {path.relative_to(root).as_posix(): code_names(path) for path in sources}
    known = set().union(*(names[path.relative_to(root).as_posix()] for path in headers))
    for path in headers:
        text = path.read_text(encoding="utf-8")
        near = {path.relative_to(root).as_posix(), *re.findall(r"[\w/]+\.h\b", text)}
        here = set(re.findall(WORD, HEAD.match(text)[0])).union(
            *(found for name, found in names.items() if any(name.endswith("/" + end) or name == end for end in near)))
        for line, code in enumerate(text.splitlines(), 1):
            for name, formula in names_of_comment(code.partition("//")[2]):
                if name not in (here if formula else known | ELSEWHERE | KEYS):
                    yield f"{path.relative_to(root)}:{line}: the comment says {name}, which no code has"
    known = KEYS.union(*names.values())
    for path in sources:
        text = path.read_text(encoding="utf-8")
        for error in ERROR.finditer(text):
            for said in TEXT.findall(error[0]):
                # What stands before a colon is the operation.
                for name in re.findall(r"(?<![\w/.-])[a-z]\w*_\w+(?!:)\b", said.partition(": ")[2] or ""):
                    if name not in known:
                        line = text.count("\n", 0, error.start()) + 1
                        yield f"{path.relative_to(root)}:{line}: the error says {name}, which no code has"


def finds_each():
    """Whether each kind of finding is made, and nothing else, in a small tree."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "core").mkdir()
        (root / "core/a.h").write_text("#pragma once\n// y = beta2 y + (1 - memory) x for `rate` >= 1, as sum_i does, and most > 1; 1 <= rate.\n"
                                       "//   const auto none = f();\n"
                                       "void average(double beta2, double rate);  // `average` it at the `rade`\n")
        (root / "core/a.cpp").write_text('void f() { check(ok, "average: max_rate is {} and beta2", rate_); }\n'
                                         'void g() { throw Error("some_op: data_offsets are {}", f("no_error")); }\n')
        return [finding.split(",")[0] for finding in findings(root)] == [
            "core/a.h:2: the comment says memory", "core/a.h:2: the comment says most", "core/a.h:4: the comment says rade",
            "core/a.cpp:1: the error says max_rate"]


def main(arguments):
    if len(arguments) == 2 and arguments[1] == "--self":
        return 0 if finds_each() else 1
    if len(arguments) != 1:
        sys.exit(__doc__)
    found = list(findings(pathlib.Path(arguments[0])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
