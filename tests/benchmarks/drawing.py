"""Pictures of the pages as SVG, in light and dark: plots with axes and legends, boxes and arrows.

A plot carries its data (svg(..., data)), so that tests/benchmarks/pictures.py draws it again without measuring.
"""
import json
import math

SIDES = ("private", "ordinary", "torch", "opacus", "floor")
# Colours of light and dark.
COLORS = {
    "private": ("#c2402f", "#f0846f"),
    "ordinary": ("#2a6f97", "#6cb2da"),
    "torch": ("#6b7280", "#a7b0bf"),
    "opacus": ("#a8700f", "#dcae55"),
    "floor": ("#3c7a4e", "#84ba92")
}
INKS = {
    "ink": ("#1d2530", "#e4e9f0"),
    "soft": ("#56616f", "#a3afbe"),
    "line": ("#d8dce2", "#3a424e"),
    "page": ("#ffffff", "#161b22"),
    "box": ("#f4f6f9", "#1f2630"),
    "edge": ("#8793a3", "#66717f"),
    "blue": ("#e3eefb", "#182c44"),
    "blue-edge": ("#3f7fc4", "#5c9be0"),
    "gold": ("#fbeedd", "#3a2a14"),
    "gold-edge": ("#c07d2a", "#d79a4c")
}


def style():
    both = {**INKS, **{f"c-{side}": colors for side, colors in COLORS.items()}}
    schemes = ["".join(f"--{name}: {colors[k]}; " for name, colors in both.items()) for k in (0, 1)]
    sides = "".join(f"  .{side} {{ stroke: var(--c-{side}) }} .f-{side} {{ fill: var(--c-{side}) }}\n"
                    for side in SIDES)
    return f"""<style>
  svg {{ {schemes[0]}}}
  @media (prefers-color-scheme: dark) {{ svg {{ {schemes[1]}}} }}
  text {{ font: 13px sans-serif; fill: var(--ink) }}
  .t {{ font-weight: bold; font-size: 15px }} .s {{ font-size: 12px; fill: var(--soft) }}
  .m {{ text-anchor: middle }} .e {{ text-anchor: end }}
  .o {{ paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round }}
  .page {{ fill: var(--page) }} .grid {{ stroke: var(--line) }}
  .l {{ fill: none; stroke: var(--soft); stroke-width: 1.5 }}
  .thick {{ fill: none; stroke-width: 2.2 }} .dash {{ stroke-dasharray: 6 4 }} .a {{ fill: var(--soft) }}
  .b {{ fill: var(--box); stroke: var(--edge) }} .p {{ fill: var(--blue); stroke: var(--blue-edge); stroke-width: 1.5 }}
  .k {{ fill: var(--gold); stroke: var(--gold-edge); stroke-width: 1.5 }}
{sides}</style>"""


def svg(width, height, title, parts, data=None):
    metadata = [] if data is None else [f"<metadata>{json.dumps(data)}</metadata>"]
    head = ('<defs><marker id="h" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path class="a" d="M0 0 8 4 0 8z"/></marker></defs>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img">', f"<title>{title}</title>", *metadata,
        style(), head, f'<rect class="page" width="{width}" height="{height}" rx="8"/>', *parts, "</svg>", ""
    ])


def text(x, y, words, kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{words}</text>'


def line(kind, x1, y1, x2, y2, arrow=False):
    end = ' marker-end="url(#h)"' if arrow else ""
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f} L{x2:.1f} {y2:.1f}"{end}/>'


def arrow(x1, y1, x2, y2):
    return line("l", x1, y1, x2, y2, arrow=True)


def box(kind, x, y, width, height, *lines):
    """A box with a bold line in its middle, and smaller ones below it."""
    first = y + height / 2 - 9 * (len(lines) - 1) + 5
    return [
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>',
        *(text(x + width / 2, first + 18 * k, words, "s m" if k else "t m") for k, words in enumerate(lines))
    ]


def polyline(kind, points):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{path}"/>'


def dot(side, x, y, words, radius=4):
    return f'<circle class="f-{side}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{words}</title></circle>'


class LinearAxis:
    """Places values on a line from `start` to `end`, with about five round ticks around them."""

    def __init__(self, values, start, end):
        self.start, self.end = start, end
        span = (max(values) - min(values)) or 1
        power = 10**math.floor(math.log10(span / 5))
        self.step = next(factor * power for factor in (1, 2, 5, 10) if span <= 6 * factor * power)
        self.low, self.high = math.floor(min(values) / self.step + 1e-9), math.ceil(max(values) / self.step - 1e-9)

    def at(self, value):
        return self.start + (value / self.step - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self):
        return [k * self.step for k in range(self.low, self.high + 1)]


class LogAxis:
    """Places values between two powers of the base on a line from `start` to `end`."""

    def __init__(self, values, start, end, base=10):
        self.start, self.end, self.base = start, end, base
        self.low = math.floor(math.log(min(values), base) + 1e-9)
        self.high = max(self.low + 1, math.ceil(math.log(max(values), base) - 1e-9))

    def at(self, value):
        return self.start + (math.log(value, self.base) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self):
        return [float(self.base)**power for power in range(self.low, self.high + 1)]


def axes(x, y, x_name, y_name, x_ticks=None, label=lambda tick: f"{tick:g}"):
    """Grid, labels and names; y.start is the lower end."""
    parts = [text(x.start - 44, y.end - 14, y_name, "s"), text((x.start + x.end) / 2, y.start + 40, x_name, "s m")]
    for tick in y.ticks():
        parts += [
            line("grid", x.start, y.at(tick), x.end, y.at(tick)),
            text(x.start - 8,
                 y.at(tick) + 4, label(tick), "s e")
        ]
    for tick in x_ticks or x.ticks():
        parts += [
            line("grid", x.at(tick), y.start, x.at(tick), y.start + 5),
            text(x.at(tick), y.start + 20, f"{tick:g}", "s m")
        ]
    return parts


def legend(names, x, y, step):
    """A dot and words for each side."""
    return [
        part for k, (side, words) in enumerate(names.items())
        for part in (dot(side, x + step * k, y - 4, words), text(x + step * k + 10, y, words, "s"))
    ]
