#!/usr/bin/env python3
"""Makes a site of the pages (README.md, CONTRIBUTING.md, docs) and of the reference of the public headers, by Doxygen.

Comments of the headers are plain // in the tree. Copies are made in which those right above a declaration, or behind
a member, are Doxygen's, and in which headings of the pages have the anchors that GitHub gives them. A warning is an
error.

usage: doxygen.py ROOT FOLDER                    FOLDER/html/index.html is the first page
       doxygen.py ROOT FOLDER --undocumented     names the public declarations that lack a comment; fails if there are some

No comment is needed by constructors, destructors, assignment and comparison; by what overrides; by a const function of one
word without arguments, such as rank() const; by an overload of a function with a comment; by a struct or enum with
commented members, and an enum of one line; and by a member that a comment at the head of a file describes (`name`, or name()
for a function).
"""
import argparse
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys

MARKUP = re.compile(r"([\\@<>&#$%*_`~|\[\]])")
SCOPE = re.compile(r"\b(class|struct|enum|union|namespace)\b[^()]*$")
# For fmt's namespace, which is not ours to document.
FORMATTERS = re.compile(r"^template <>\nstruct fmt::.*?^};", re.S | re.M)
NOT_DOCUMENTED = re.compile(r"\s*(#|}|namespace\b|$|//)")
HEADING = re.compile(r"^(#+) +(.*?) *$", re.M)
# A picture with a light and a dark file, of which Doxygen shows the light one.
PICTURE = re.compile(r'<picture>.*?<img src="([^"]+)" alt="([^"]+)"></picture>')
FENCED = re.compile(r"^ *```.*?^ *```$", re.S | re.M)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def escaped(text):
    """A comment's text, in which Doxygen would find markup that is none; but for `code`."""
    return "".join(piece if k % 2 else MARKUP.sub(r"\\\1", piece) for k, piece in enumerate(re.split(r"(`[^`]+`)", text)))


class Scopes:
    """Whether a line of a header stands in a class or namespace, and not in a function."""

    def __init__(self):
        self.open = []
        self.statement = ""

    def declares(self):
        return all(self.open)

    def read(self, code):
        for character in re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)+\'', '""', code):
            if character == "{":
                self.open.append(bool(SCOPE.search(self.statement)))
            elif character == "}" and self.open:
                self.open.pop()
            self.statement = "" if character in ";{}" else self.statement + character
        self.statement += " "


def shared(code, text, above):
    """A declaration of several names, with the text behind each but the last, and but the first if it has one above."""
    made, depth, names = "", 0, 0
    for character in code:
        depth += (character in "<({[") - (character in ">)}]")
        made += character
        if character == "," and depth == 0:
            names += 1
            made += f" /**<{text} */" if text and not (above and names == 1) else ""
    return made, names > 0


def with_doxygen_comments(text):
    """A header whose comments of declarations are Doxygen's; the lines stay where they are."""
    lines = FORMATTERS.sub(lambda found: "\n" * found[0].count("\n"), text).splitlines()
    made, scopes, behind = [], Scopes(), None  # behind: the column of a comment behind a member
    above = ""  # the comment right above
    top = True  # in the comment that opens the file
    for i, line in enumerate(lines):
        code, mark, comment = line.partition("//")
        if re.match(r"\s*//", line):
            if top:
                made.append(("/*! \\file\n" if i == 0 else "") + escaped(comment.strip()))
                continue
            after = next((later for later in lines[i:] if not later.lstrip().startswith("//")), "")
            if behind == len(code):
                line = f"{code}///<{escaped(comment)}"
            elif scopes.declares() and not NOT_DOCUMENTED.match(after):
                line = f"{code}///{escaped(comment)}"
                above += escaped(comment)
        else:
            if top:
                line, top = "*/" + ("" if line == "#pragma once" else "\n" + line), False
            whole = code.count("{") == code.count("}")  # a function of one line may end here
            member = (mark and scopes.declares() and re.search(r"[;,\w]\s*$|\S }\s*$", code) and
                      (whole or not code.rstrip().endswith("}")) and not code.lstrip().startswith("#"))
            behind = len(code) if member else None
            declares = scopes.declares() and code.rstrip().endswith(";")
            scopes.read(code)
            documents = escaped(comment) if member else above
            if declares and documents:
                code, several = shared(code, documents, above)
                line = code + (f"///<{documents}" if member or several else "")
            elif member:
                line = f"{code}///<{documents}"
            above = ""
        made.append(line)
    return "\n".join(made) + "\n"


def page_id(path):
    return "page_" + re.sub(r"\W", "_", path.removesuffix(".md"))


def slug(heading):
    """GitHub's anchor of a heading."""
    words = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


class Pages:
    """The pages of a tree, with Doxygen's anchors at their headings and links to them."""

    def __init__(self, root):
        self.root = root
        found = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
        self.paths = [path.relative_to(root).as_posix() for path in found if path.is_file()]
        self.problems = []
        self.anchors = {path: {} for path in self.paths}  # GitHub's anchor -> ours
        self.texts = {path: self.headed(path) for path in self.paths}

    def prose(self, text, change):
        """The text, changed but for its blocks of code."""
        made, end = [], 0
        for code in FENCED.finditer(text):
            made += [change(text[end:code.start()]), code[0]]
            end = code.end()
        return "".join(made) + change(text[end:])

    def headed(self, path):
        anchors = self.anchors[path]

        def heading(found):
            marks, title = found.groups()
            anchor, n = slug(title), 0
            while f"{anchor}-{n}" in anchors or (n == 0 and anchor in anchors):
                n += 1
            anchor += f"-{n}" if n else ""
            anchors[anchor] = page_id(path) + (f"_{anchor}" if anchors else "")
            return f"{marks} {title} {{#{anchors[anchor]}}}"

        return self.prose((self.root / path).read_text(encoding="utf-8"), lambda text: HEADING.sub(heading, text))

    def link(self, path, found):
        image, text, target = found.groups()
        if "://" in target:
            return found[0]
        text = " ".join(text.split())  # Doxygen knows no link whose text breaks over lines
        name, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) if name else path
        if image:
            return f"![{text}]({posixpath.basename(there)})"
        if there in self.paths:
            to = self.anchors[there].get(anchor) if anchor else page_id(there)
        else:
            to = "" if (self.root / there).exists() and not anchor else None
        if to is None:
            self.problems.append(f"{path}: [{text}]({target}) leads nowhere")
        return f"[{text}](@ref {to})" if to else text  # the site has not every file of the tree

    def write(self, folder):
        for path, text in self.texts.items():
            to = folder / path
            to.parent.mkdir(parents=True, exist_ok=True)
            linked = lambda prose: LINK.sub(lambda found: self.link(path, found), PICTURE.sub(r"![\2](\1)", prose))
            to.write_text(self.prose(text, linked), encoding="utf-8")


def write(root, folder):
    """The copies that Doxygen reads: headers, and the pages, which are returned."""
    sys.path.insert(0, str(root))
    import public_headers
    public_headers.write(root, folder / "sotto", detail=False)
    for header in (folder / "sotto").rglob("*.h"):
        header.write_text(with_doxygen_comments(header.read_text(encoding="utf-8")), encoding="utf-8")
    pages = Pages(root)
    pages.write(folder)
    return pages


def needs_comment(warning):
    """Whether a declaration that Doxygen found undocumented should have a comment."""
    path, line, member, kind, owner = re.match(r"(\S+?):(\d+): warning: (?:Member (.*?) \((\w+)\) of \w+|Compound) (\S+)", warning).groups()
    text = pathlib.Path(path).read_text(encoding="utf-8")
    lines = text.splitlines()[int(line) - 1:]
    if member is None or kind == "enumeration":
        body = re.split(r"^ *};", "\n".join(lines), flags=re.M)[0]
        return "//" not in body and not (kind == "enumeration" and "\n" not in body)
    name = re.match(r"operator(\(\)|[^\w(]+)|[~\w]+", member)[0]
    described = f"`{name}`" if kind == "variable" else f"{name}()"
    # Comments above no declaration: at the head of a file, or of one that another one includes.
    prose = "".join(re.findall(r"\A/\*!.*?\*/|^//[^/][^\n]*", text, re.M | re.S)).replace("\\", "")
    return not (name.strip("~") == re.sub(r"<.*", "", owner).split("::")[-1] or re.match(r"operator(=|==|<=>)", name) or
                re.search(r"\b(override|final)\b", re.split(r"[;{]", " ".join(lines[:9]))[0]) or
                re.match(r"[a-z0-9]+\(\) const", member) or described in prose or
                kind == "function" and re.search(rf"//.*\n(?: *template <.*\n)?.*[ &*]{re.escape(name)}\(", text))


def run(root, folder, undocumented):
    copies = folder / "source"
    pages = write(root, copies)
    pictures = sorted({str(path.parent) for kind in ("*.svg", "*.png") for path in (root / "docs").rglob(kind)})
    quoted = lambda paths: " ".join(f'"{path}"' for path in paths)
    settings = (root / "docs/Doxyfile").read_text(encoding="utf-8") + f"""
INPUT = {quoted([copies / path for path in pages.paths] + [copies / "sotto"])}
RECURSIVE = YES
IMAGE_PATH = {quoted(pictures)}
STRIP_FROM_PATH = "{copies}"
STRIP_FROM_INC_PATH = "{copies}"
OUTPUT_DIRECTORY = "{folder}"
"""
    settings += "EXTRACT_ALL = NO\n" if undocumented else "WARN_AS_ERROR = FAIL_ON_WARNINGS\n"
    made = subprocess.run(["doxygen", "-"], input=settings, text=True, stderr=subprocess.PIPE)
    if undocumented:
        lines = sorted({line for line in made.stderr.splitlines() if " is not documented" in line})
        missing = [line for line in lines if needs_comment(line)]
        print("\n".join(missing) + f"\n{len(missing)} declarations without a comment")
        return 1 if missing else made.returncode
    print(made.stderr + "\n".join(pages.problems), file=sys.stderr)
    return made.returncode or len(pages.problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--undocumented", action="store_true")
    options = parser.parse_args()
    for made in ("source", "html"):
        shutil.rmtree(options.folder / made, ignore_errors=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    return run(options.root.resolve(), options.folder.resolve(), options.undocumented)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
