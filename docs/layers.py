#!/usr/bin/env python3
"""Writes docs/appendix/layers.md, the reference of layers, losses, optimizers and schedules, from the public headers.

usage: layers.py ROOT            fails if the page is not what the headers say
       layers.py ROOT --write    writes the page
       layers.py ROOT --self     checks that a changed option would be found
"""
import pathlib
import re
import sys
import textwrap

PAGE = "docs/appendix/layers.md"
LAYERS = {
    "dense_layers": "Dense layers, embeddings, dropout",
    "conv_pool_layers": "Convolution and pooling",
    "resampling_layers": "Transposed convolution and resampling",
    "norm_layers": "Normalisation",
    "activation_layers": "Activations",
    "attention_layers": "Attention and transformers",
    "recurrent_layers": "Recurrent layers",
    "embedding_bag": "Bags of ids",
    "shape_layers": "Softmax, padding, pixel shuffling",
    "containers": "Containers",
    "lora": "Low-rank adaptation",
    "quantized_layers": "Quantised layers",
}
FUNCTIONS = ["autograd/ops/loss", "autograd/ops"]
HEAD = """# Layers, losses, optimizers, schedules

This page is written by [docs/layers.py](../layers.py) from the public headers. Names and shapes of parameters are PyTorch's.
Everything is in namespace `sotto::nn`, included by `<sotto/nn/layers.h>` and `<sotto/nn/optimizers.h>`, or by
`<sotto/sotto.h>`. Pass options by name: `Conv2d(3, 16, 3, {.stride = {2}, .padding = {1}})`. Sizes and options out of
range throw `std::invalid_argument`.
"""
COMMENT = r"((?:^ *//[^\n]*\n)*)"
TYPE = re.compile(COMMENT + r"(?:^template <([^>]*)>\n)?" + COMMENT + r"^(class|struct) (\w+)( final)?( : [^{]*)? \{(\}|.*?^\});", re.M | re.S)
ALIAS = re.compile(r"^using (\w+) = (\w+)<(.*)>; +// (.*)$", re.M)
WIDTH = 118


def joined(comment):
    """A comment as one line of Markdown, without its examples."""
    lines = [line.strip().removeprefix("//") for line in comment.splitlines()]
    text = " ".join(line.strip() for line in lines if not line.startswith("   "))
    text = re.sub(r" ?Throws std::invalid_argument[^.]*(\.[^ ][^.]*)*\.(?= |$)", "", text)
    return re.sub(r"([*<])", r"\\\1", text).strip().removesuffix(":")


def wrapped(line):
    """A paragraph or bullet, in lines of a page."""
    if line.startswith(("#", "|")) or len(line) <= WIDTH:
        return line
    return textwrap.fill(line, WIDTH, subsequent_indent="  " if line.startswith("- ") else "", break_long_words=False, break_on_hyphens=False)


class Declared:
    """A class or struct of a header."""

    def __init__(self, found):
        above, self.template, below, self.kind, self.name, _, self.bases, body = found.groups()
        self.comment = joined(above + below)
        self.bases = self.bases or ""
        if self.kind == "class":
            body = body.partition(" public:")[2]
        self.body = re.split(r"^ (?:private|protected):", body, flags=re.M)[0]

    def constructors(self):
        """Their arguments, the longest list of those that only differ in a short form last."""
        of_name = rf"^  (?:explicit )?{self.name}\(((?:[^{{}};()]|\{{\}}|\(\))*)\)(?:;|\s*:| \{{| =)"
        return [" ".join(arguments.split()) for arguments in re.findall(of_name, self.body, re.M)]

    def fields(self):
        """(declaration, comment) of each data member."""
        made, above = [], ""
        for line in self.body.splitlines():
            code, _, behind = line.partition("//")
            if not code.strip():
                above += line.strip() + "\n" if behind else ""
                continue
            found = re.match(r"  ([\w:<>*]+) (\w+(?: = .*|\{[^{}]*\})?(?:, \w+.*)?);\s*$", code)
            if found and found[1] not in ("using", "return", "static"):
                for name in split(found[2]):
                    made.append((f"{found[1]} {name}", joined("//" + behind) or joined(above)))
            above = ""
        return made


def functions(text):
    """The comment of each function that returns a Var, by its name: right above it, or behind it."""
    made, comment, used = {}, "", False
    for line in text.splitlines():
        if line.startswith("//"):
            comment, used = ("" if used else comment) + line + "\n", False
        elif found := re.match(r"Var (\w+)\(", line):
            behind = line.partition("//")[2]
            made[found[1]] = joined("//" + behind if behind else comment)
            used = True
        elif not line.startswith(" "):
            comment = ""
    return made


class Headers:
    def __init__(self, root):
        self.root = root
        self.types = {}
        for path in [*root.glob("nn/layers/*.h"), *root.glob("nn/optim/*.h"), *root.glob("autograd/ops/**/*.h")]:
            for declared in self.of(path):
                self.types.setdefault(declared.name, declared)
        self.functions = {}
        for folder in FUNCTIONS:
            for path in sorted((root / folder).glob("*.h")):
                self.functions.update(functions(path.read_text(encoding="utf-8")))
        self.functions.update(functions((root / "nn/functional.h").read_text(encoding="utf-8")))

    @staticmethod
    def of(path):
        return [Declared(found) for found in TYPE.finditer(path.read_text(encoding="utf-8"))]


def option(declaration, comment):
    """A bullet of an option: its name, default and meaning."""
    found = re.match(r"(.*?) (\w+)(?: = (.*)|(\{.*\}))?$", declaration)
    name, default = found[2], found[3] or found[4]
    value = f" = {default}" if default not in (None, "{}", "std::nullopt") else ""
    return f"- `.{name}{value}`" + (f": {comment}" if comment else "")


def argument(text, headers):
    """An argument as a caller writes it, and its options, if it is such a struct."""
    found = re.match(r"(?:const )?([\w:]+(?:<.*>)?)(?: const)?[&*]? ?(\w+)?( = .*)?$", text)
    if not found:
        return text, None
    kind, name, default = found.groups()
    if kind in headers.types and kind.endswith("Options"):
        return "{options}", headers.types[kind]
    shown = name or kind
    return f"{shown}{default}" if default and default != " = {}" else shown, None


def split(arguments):
    """Arguments at the commas that are in no brackets."""
    made, depth = [""], 0
    for character in arguments:
        depth += (character in "<({") - (character in ">)}")
        if character == "," and depth == 0:
            made.append("")
        else:
            made[-1] += character
    return [text.strip() for text in made if text.strip()]


def aliases(text):
    """Names that users write, by the template they stand for."""
    made = {}
    for name, template, _, _ in ALIAS.findall(text):
        made.setdefault(template, []).append(name)
    return made


def layer(declared, names, headers, told):
    """The lines of a layer."""
    calls, options = [], []
    base = re.search(r"public (\w+)", declared.bases)
    of_base = headers.types.get(base[1]) if base else None
    constructors = declared.constructors()
    if not constructors and of_base and "using " + of_base.name in declared.body:
        constructors = [arguments.replace("Layer ", "layer ") for arguments in of_base.constructors()]
    for arguments in constructors or [""]:
        shown = []
        for text in split(arguments):
            written, struct = argument(text, headers)
            shown.append(written)
            if struct and struct not in options:
                options.append(struct)
        call = f"`{names[0]}({', '.join(shown)})`"
        if call not in calls:
            calls.append(call)
    function = re.match(r"(?:(?:sotto|nn)::(\w+)|(\w+)\(\))", declared.comment)
    formula = headers.functions.get(function[1] or function[2]) if function else None
    text = declared.comment if not formula or formula in declared.comment else f"{declared.comment} {formula}"
    lines = [f"### {', '.join(names)}", "", ", ".join(calls) + (": " + text if text else ""), ""]
    weights = {}
    for name, comment in declared.fields():
        if "Parameter>" in name:
            weights.setdefault(comment, []).append("`" + name.partition("> ")[2] + "`")
    if weights:
        lines += ["Parameters: " + "; ".join(", ".join(name) + " " + comment.strip(".") for comment, name in weights.items()) + ".", ""]
    for struct in options:
        if struct.name in told:
            lines += [f"Options: those of {told[struct.name]}.", ""]
        else:
            told[struct.name] = names[0]
            lines += [option(*field) for field in struct.fields()] + [""]
    return lines


def layers(headers):
    lines, told = [], {}
    for header, title in LAYERS.items():
        path = headers.root / f"nn/layers/{header}.h"
        named = aliases(path.read_text(encoding="utf-8"))
        lines += [f"## {title}", ""]
        plain = []
        for declared in headers.of(path):
            if declared.name.endswith("Options") or "Module" not in declared.bases and not declared.bases:
                continue
            if re.search(r"Activation<(\w+)>", declared.bases):
                plain.append(f"`{declared.name}`")
            elif declared.kind == "class" and "final" in path.read_text(encoding="utf-8").partition(f"class {declared.name}")[2][:7]:
                lines += layer(declared, named.get(declared.name, [declared.name]), headers, told)
        if plain:
            at = lines.index(f"## {title}") + 2
            lines[at:at] = ["Without options: " + ", ".join(plain) + ".", ""]
    return lines


def losses(headers):
    lines = ["## Losses", "", "A loss returns one number per sample, [n]. `.within` says how the elements of a sample are reduced: "
             "`Within::mean` (the default), `sum`, or `none` for one number per element.", ""]
    for declared in headers.of(headers.root / "nn/layers/loss_layers.h"):
        function = re.match(r"(\w+)\(\)", declared.comment.replace("\\_", "_"))[1]
        call = re.search(r"operator\(\)\((.*?)\) const", declared.body, re.S)[1]
        shown = ", ".join(argument(text, headers)[0] for text in split(" ".join(call.split())))
        lines += [f"### {declared.name}", "", f"`{declared.name}{{options}}({shown})`: {headers.functions.get(function, '')}", ""]
        fields = [field for field in declared.fields() if " within" not in field[0]]
        for declaration, comment in list(fields):
            kind = declaration.split()[0]
            if kind in headers.types:
                fields.remove((declaration, comment))
                fields += [(f"{text.split()[0]} options." + text.partition(" ")[2], note) for text, note in headers.types[kind].fields()]
        lines += [option_of_loss(*field) for field in fields] + ([""] if fields else [])
    return lines


def option_of_loss(declaration, comment):
    kind, _, rest = declaration.partition(" ")
    if rest.startswith("options."):
        return option(f"{kind} {rest.removeprefix('options.')}", comment).replace("`.", "`.options.", 1)
    return option(declaration, comment)


def optimizers(headers):
    text = (headers.root / "nn/optim/optimizer.h").read_text(encoding="utf-8")
    lines = ["## Optimizers", "", "`Adam optimizer(model, {.learning_rate = 1e-3});` updates every parameter of the model that is not frozen. "
             "A list of groups gives each group of parameters options of its own. Below, g is the gradient, p the parameter, and "
             "t = 1, 2, ... counts its steps; an option is explained where it stands first.", ""]
    told, explained = {}, set()
    for name, template, rule, source in ALIAS.findall(text):
        if template != "RuleOptimizer":
            continue
        base, _, argument_ = rule.partition("<")
        decoupled = argument_.startswith("true")
        fields = []
        for declaration, comment in headers.types[base].fields():
            kind, _, default = declaration.partition(" = ")
            found = re.match(r"decoupled \? (.*) : (.*)", default)
            fields.append((f"{kind} = {(found[1] if decoupled else found[2]) if found else default}", comment))
        written = ", ".join("." + declaration.partition(" ")[2] for declaration, _ in fields)
        summary = f"{told[base]} with other defaults ({source})." if base in told else headers.types[base].comment
        told.setdefault(base, name)
        lines += [f"### {name}", "", f"`{name}(model, {{{written}}})`: {summary}", ""]
        news = [field for field in fields if (field[0].split()[1], field[1]) not in explained]
        explained |= {(field[0].split()[1], field[1]) for field in fields}
        lines += [re.sub(r" = [^`]*`", "`", option(*field)) for field in news] + ([""] if news else [])
    return lines


def schedules(headers):
    text = (headers.root / "nn/optim/schedule.h").read_text(encoding="utf-8")
    lines = ["## Schedules", "", "`optimizer.follow(Schedule::warmup_cosine(100, 2000), step)` sets the learning rate of step `step`; `base` is the rate "
             "that the optimizer was made with.", "", "| `Schedule::` | rate at step k |", "|---|---|"]
    for comment, name, arguments in re.findall(r"((?:^  //[^\n]*\n)+)^  static Schedule (\w+)\(([^)]*)\)", text, re.M):
        shown = ", ".join(argument(part, headers)[0] for part in split(" ".join(arguments.split())))
        lines.append(f"| `{name}({shown})` | {joined(comment)} |")
    cycle = headers.types["OneCycle"]
    return lines + ["", "`one_cycle` takes:", ""] + [option(*field) for field in cycle.fields()]


def page(root):
    headers = Headers(root)
    lines = layers(headers) + losses(headers) + optimizers(headers) + schedules(headers)
    return HEAD + "\n" + re.sub(r"\n{3,}", "\n\n", "\n".join(wrapped(line) for line in lines)).rstrip() + "\n"


def main():
    root = pathlib.Path(sys.argv[1])
    option_given = sys.argv[2] if len(sys.argv) > 2 else ""
    made, path = page(root), root / PAGE
    if option_given == "--write":
        path.write_text(made, encoding="utf-8")
    elif option_given == "--self":
        for expected in ("`.bias = true`: with a bias", "### Conv1d, Conv2d, Conv3d", "### CrossEntropyLoss", "### AdamW", "`warmup_cosine("):
            if expected not in made:
                sys.exit(f"layers.py: the page has no {expected}")
    elif not path.is_file() or path.read_text(encoding="utf-8") != made:
        sys.exit(f"{PAGE} is not what the headers say; write it by docs/layers.py . --write")


main()
