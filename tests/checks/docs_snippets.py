#!/usr/bin/env python3
"""The blocks of code and commands in README.md and docs (but docs/appendix), compiled, run or at least read.

A block's language, and a comment on the line before it, say what is done with it; a block without a known kind is an
error, and so is an indented one in README.md, tutorials and how-tos.

  cpp with `int main() {`       a program: compiled and run
  <!-- file NAME --> cpp        a program: compiled; a later command "c++ ... NAME -o PROGRAM" of the page makes it
  <!-- build [NAME] --> cpp     a program: compiled, and not run, as its data are not here
  <!-- compile --> cpp          statements: compiled as a function, with the names of docs_prelude.h
  <!-- declare --> cpp          declarations: compiled outside of functions, with the same names
  <!-- quote FILE MARK --> cpp  compiled elsewhere: what stands in FILE between two lines "// MARK"; without MARK all of it
  <!-- quote FILE MARK --> python  the same, between two lines "# MARK"
  <!-- run --> sh               run
  <!-- parse --> sh, console    read: programs and their options exist
  <!-- follow [DATA] --> sh     read; run by follow_tutorials.py, where the data are
  <!-- fetch DATA --> sh        read; gets data from their publisher, which follow_tutorials.py has elsewhere
  console                       `$ command` is run, and prints what follows
  <!-- output [N%] --> text     is printed by the program or command before it, up to N % of each number
  json                          each line is a JSON text
  text, meson, cmake            neither code of ours nor a command

What is run finds the tree's samples and tests, the build folder as `build`, and files of the page's earlier blocks. In
outputs "…" stands for any text of a line, and a line "..." for any lines.

usage: docs_snippets.py check ROOT                               kinds, quotations, JSON
       docs_snippets.py write ROOT PROGRAMS FRAGMENTS DEPFILE    C++ sources of the blocks
       docs_snippets.py run ROOT BUILD PROGRAMS                  with the program made of the first of these
"""
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

MARKS = {"cpp": ("compile", "declare", "quote"), "python": ("quote",), "sh": ("run", "parse"), "console": ("", "parse"),
         "text": ("", "output"), "json": ("",), "meson": ("",), "cmake": ("",)}
# Programs that are not ours; of their arguments nothing is known here but Meson's own options.
TOOLS = {"c++", "cat", "cd", "cmake", "curl", "git", "grep", "head", "ln", "ls", "meson", "mkdir", "mv", "ninja", "pip", "pkg-config",
         "python3", "rm", "sed", "sh", "tar", "unzip"}
# Of tutorials: sh that is only read here.
FOLLOWED = ("follow", "fetch")
MESON_OPTIONS = {"buildtype", "optimization", "prefix", "b_sanitize", "b_lundef", "b_pch", "werror"}


@dataclasses.dataclass
class Block:
    page: str
    line: int  # of the first line within
    language: str
    mark: str
    arguments: list
    text: str

    def where(self):
        return f"{self.page}:{self.line}"

    def share(self):
        """Of an output: how much its numbers may differ."""
        return float(self.arguments[0].rstrip("%")) / 100 if self.arguments else 0

    def is_program(self):
        return self.language == "cpp" and "int main() {" in self.text and self.mark in ("", "file", "build")

    def problem(self):
        if self.language not in MARKS:
            return f"blocks of \"{self.language}\" are of no known kind"
        if self.is_program():
            return "" if self.text.endswith("\n}\n") else "main is not the last function of the program"
        known = MARKS[self.language] + (FOLLOWED if self.language == "sh" else ())
        return "" if self.mark in known else f"\"{self.mark}\" is no kind of {self.language}"


def pages(root):
    found = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [page for page in found if page.relative_to(root).parts[:2] != ("docs", "appendix")]


def blocks(page, text):
    """The blocks of a page, in order."""
    found, inside, before = [], None, ""
    for number, line in enumerate(text.splitlines(), 1):
        if inside is None and line.startswith("```"):
            mark = re.fullmatch(r"<!-- (.*) -->", before)
            words = mark.group(1).split() if mark else [""]
            inside = Block(page, number + 1, line[3:], words[0], words[1:], "")
        elif inside is not None and line == "```":
            found.append(inside)
            inside = None
        elif inside is not None:
            inside.text += line + "\n"
        before = line
    return found


def indented(page, text):
    """Lines that begin an indented block."""
    text = re.sub(r"^```.*?^```$", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S | re.M)
    lines = text.split("\n")
    return [f"{page}:{k + 1}: an indented block" for k, line in enumerate(lines)
            if line.startswith("    ") and k > 0 and not lines[k - 1].strip()]


def all_blocks(root):
    return [block for page in pages(root)
            for block in blocks(page.relative_to(root).as_posix(), page.read_text(encoding="utf-8"))]


def quoted(root, block):
    """What the block should be, without the indentation of the closing line."""
    source, *mark = block.arguments
    text = (root / source).read_text(encoding="utf-8")
    return re.split(rf" *(?://|#) {mark[0]}\n", text)[1] if mark else text


def check(root):
    problems = []
    for page in pages(root):
        name = page.relative_to(root).as_posix()
        if name == "README.md" or name.startswith(("docs/tutorials", "docs/how-to")):
            problems += indented(name, page.read_text(encoding="utf-8"))
    for block in all_blocks(root):
        if problem := block.problem():
            problems.append(f"{block.where()}: {problem}")
        elif block.mark == "quote" and block.text != quoted(root, block):
            problems.append(f"{block.where()}: is not what stands in {block.arguments[0]}")
        elif block.language == "json":
            for line in block.text.splitlines():
                try:
                    json.loads(line)
                except ValueError as error:
                    problems.append(f"{block.where()}: {error}")
    return problems


def located(block, text):
    return f"#line {block.line} \"{block.page}\"\n{text}"


def program(block, number):
    """The program as a function in a namespace, its includes apart."""
    code = re.sub(r"^#include .*$", "", block.text, flags=re.M)
    code = code.replace("int main() {", "int run() {")[:-2] + "  return 0;\n}\n"
    return f"namespace program_{number} {{\n{located(block, code)}}}\n"


def programs_source(found):
    includes = dict.fromkeys(line for block in found for line in re.findall(r"^#include .*$", block.text, re.M))
    bodies = "".join(program(block, number) for number, block in enumerate(found))
    cases = "".join(f"    case {number}: return program_{number}::run();\n" for number in range(len(found)))
    lines = "\n".join(includes)
    return (f"{lines}\n#include <cstdlib>\n{bodies}\nint main(int, char** arguments) {{\n"
            f"  switch (std::atoi(arguments[1])) {{\n{cases}  }}\n  return 1;\n}}\n")


def fragments_source(found):
    parts = ["#include \"checks/docs_prelude.h\"\n"]
    for number, block in enumerate(found):
        body = located(block, block.text)
        if block.mark == "compile":
            body = f"[[maybe_unused]] void run() {{\n{body}}}\n"
        parts.append(f"namespace fragment_{number} {{\nusing namespace sotto;\nusing namespace given;\n{body}}}\n")
    return "".join(parts)


def write(root, programs, fragments, depfile):
    found = all_blocks(root)
    pathlib.Path(programs).write_text(programs_source([b for b in found if b.is_program()]), encoding="utf-8")
    compiled = [b for b in found if b.language == "cpp" and b.mark in ("compile", "declare")]
    pathlib.Path(fragments).write_text(fragments_source(compiled), encoding="utf-8")
    folders = sorted(path for path in (root / "docs").rglob("*") if path.is_dir())
    needed = " ".join(str(path).replace(" ", "\\ ") for path in (*pages(root), *folders))
    pathlib.Path(depfile).write_text(f"{programs} {fragments}: {needed}\n", encoding="utf-8")


def commands(text):
    """The commands of a shell block, as lists of words, without assignments in front and redirections behind."""
    for line in re.sub(r"\\\n", " ", text).splitlines():
        words = shlex.split(line, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words = words[1:]
        if words:
            yield words


WITH_COMMANDS = {"sotto-privacy-budget", "sotto-tabular", "sotto-images", "sotto-text"}


def help_of(program, words):
    subcommand = [word for word in words[1:2] if not word.startswith("-")] if program.name in WITH_COMMANDS else []
    return subprocess.run([program, *subcommand, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout


def built(build):
    """What Meson builds when it is asked to, as build/tests/benchmarks/bench_steps."""
    targets = build / "meson-info/intro-targets.json"
    made = json.loads(targets.read_text()) if targets.is_file() else []
    return {f"build/{pathlib.Path(name).relative_to(build.resolve())}" for target in made for name in target["filename"]}


def unread(root, build, words, made=()):
    """What is wrong with a command that is not run; empty if nothing is seen. `made` are programs that the page compiles."""
    name, options = words[0], [word.split("=")[0] for word in words[1:] if word.startswith("-")]
    if name in TOOLS or name in made:
        known = MESON_OPTIONS | set(re.findall(r"option\('(\w+)'", (root / "meson_options.txt").read_text()))
        unknown = [option for option in options if name == "meson" and option[:2] == "-D" and option[2:] not in known]
    elif name.startswith("build/samples/") or (build / "samples" / name).is_file():
        program = build / "samples" / name.split("/")[-1]
        if not program.is_file():
            return f"no program {name}"
        text = help_of(program, words)
        unknown = [option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", text)]
    elif name.startswith("build/tests/"):
        unknown = [] if (build / name[len("build/"):]).is_file() or name in built(build) else [name]
    else:
        unknown = [] if os.access(root / name, os.X_OK) else [name]
    return f"{' '.join(words)}: unknown: {', '.join(unknown)}" if unknown else ""


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def printed_as(expected, output, share=0):
    """Whether the output is what a page shows of it, where numbers may differ by a share of the larger one."""
    def line_pattern(line):
        literal = re.escape(line).replace("…", ".*")
        return re.sub(r"\d+(?:\\\.\d+)?", r"(\\d+(?:\\.\\d+)?)", literal) if share else literal

    pattern = "".join(r"(?:.*\n)*" if line == "..." else line_pattern(line) + r" *\n" for line in expected.splitlines())
    found = re.fullmatch(pattern, output)
    pairs = zip(map(float, NUMBER.findall(expected)), map(float, found.groups())) if found and share else []
    return found is not None and all(abs(a - b) <= share * max(a, b) for a, b in pairs)


def sessions(text):
    """Pairs of a command and what follows it, of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command = re.match(r"(?:.*\\\n)*.*\n", part).group(0)
        yield command, part[len(command):]


# Programs of a page are compiled before, all at once: this gives the one of a source.
COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in
    *.cpp) source=$1 ;;
    -o) program=$2 ;;
  esac
  shift
done
cp "$(dirname -- "$0")/$source" "$program"
"""


class Runner:
    """Runs the blocks of a page in a folder of its own."""

    def __init__(self, root, build, programs, folder):
        self.root, self.build, self.programs, self.folder = root, build, programs, folder
        self.output = ""
        for name, to in (("samples", root / "samples"), ("tests", root / "tests"), ("build", build)):
            (folder / name).symlink_to(to)
        self.compiled("samples/first_program.cpp", f"{build}/samples/first_program")
        self.script(folder / ".tools/c++", COMPILER)

    @staticmethod
    def script(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def compiled(self, source, command):
        """What the page's compiler gives for a source."""
        self.script(self.folder / ".tools" / source, f"#!/bin/sh\nexec {command}\n")

    def run(self, command):
        path = f"{self.folder / '.tools'}:{self.build / 'samples'}:{os.environ['PATH']}"
        done = subprocess.run(command, cwd=self.folder, env={**os.environ, "PATH": path}, text=True, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
        self.output = done.stdout
        return f"status {done.returncode}: {done.stdout}" if done.returncode else ""

    def problems(self, block, number):
        """What is wrong with a block; number is a program's."""
        if block.is_program() and not block.mark:
            return self.run([self.programs, str(number)])
        if block.mark == "file":
            self.compiled(block.arguments[0], f"{self.programs} {number}")
        if block.mark == "run":
            return self.run(["sh", "-euc", block.text])
        if block.mark == "output":
            return "" if self.output is None or printed_as(block.text, self.output, block.share()) else f"printed was:\n{self.output}"
        if block.language == "console" and not block.mark:
            return "\n".join(filter(None, map(self.session, sessions(block.text))))
        if block.mark in ("parse", *FOLLOWED):
            self.output = None
            text = "".join(c for c, _ in sessions(block.text)) if block.language == "console" else block.text
            made = {f"./{name}" for name in re.findall(r"\bc\+\+ .* -o (\S+)", text)}
            return "\n".join(filter(None, (unread(self.root, self.build, words, made) for words in commands(text))))
        return ""

    def session(self, command_and_output):
        command, expected = command_and_output
        if problem := self.run(["sh", "-euc", command]):
            return problem
        shown = self.output.rstrip("\n") + "\n"
        return "" if printed_as(expected.rstrip("\n") + "\n", shown) else f"{command}printed was:\n{self.output}"


def run(root, build, programs):
    problems, number = [], 0
    for page in pages(root):
        name = page.relative_to(root).as_posix()
        with tempfile.TemporaryDirectory() as folder:
            runner = Runner(root, build, programs, pathlib.Path(folder))
            for block in blocks(name, page.read_text(encoding="utf-8")):
                if problem := runner.problems(block, number):
                    problems.append(f"{block.where()}: {problem}")
                number += block.is_program()
    return problems


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    root = pathlib.Path(arguments[1]).resolve()
    problems = []
    if arguments[0] == "check":
        problems = check(root)
    elif arguments[0] == "write":
        write(root, *arguments[2:])
    else:
        problems = run(root, pathlib.Path(arguments[2]).resolve(), pathlib.Path(arguments[3]).resolve())
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
