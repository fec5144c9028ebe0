# SPDX-License-Identifier: GPL-2.0
"""Line charts as SVG text, for a page that needs nothing but itself.

Pure: numbers in, markup out. The library that Debian has for this would be
twenty times our size, and a user's machine under test has it not.
"""
import html
import math

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 74, 14, 14, 50
COLOURS = ("#c2410c", "#1d4ed8", "#15803d", "#7e22ce", "#0e7490", "#a16207", "#be123c")
MARKS = ("circle", "square", "triangle", "diamond")
LOG_FROM = 40               # largest over smallest, from which a vertical axis is logarithmic


def short(value, unit=""):
    """1234567 → '1.23 M': for axes and tables."""
    if value is None:
        return ""
    if unit == "%":
        return f"{value:.1f}"
    value = float(f"{value:.3g}")       # 999.7 is a thousand by then
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def nice_step(span):
    raw = span / 5
    size = 10 ** math.floor(math.log10(raw))
    return next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw)


class Axis:
    """From values to pixels, with its ticks: [(value, label)]."""

    def __init__(self, low, high, start, end, log):
        self.log = log and low > 0
        if self.log:
            low, high = math.log10(low), math.log10(high)
        if high <= low:
            low, high = (low - 0.5, low + 0.5) if self.log or low else (0, 1)
        self.low, self.high, self.start, self.end = low, high, start, end

    def at(self, value):
        x = math.log10(value) if self.log else value
        return self.start + (x - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self):
        if not self.log:
            step = nice_step(self.high - self.low)
            first = math.ceil(self.low / step - 1e-9)
            return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = range(math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9) + 1)
        ret = [10.0 ** i for i in decades]
        if len(ret) < 3:
            ret = [m * 10.0 ** i for i in range(math.floor(self.low), math.ceil(self.high) + 1)
                   for m in (1, 2, 5)]
            ret = [v for v in ret if self.low - 1e-9 <= math.log10(v) <= self.high + 1e-9]
        return ret[::-(-len(ret) // 8) or 1]


def mark(kind, x, y, colour):
    shapes = {"square": f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
              "triangle": f"M{x:.1f} {y - 5:.1f}l5 9h-10z",
              "diamond": f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"}
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.2" fill="{colour}"/>'
    return f'<path d="{shapes[kind]}" fill="{colour}"/>'


def style(nr):
    return COLOURS[nr % len(COLOURS)], MARKS[nr % len(MARKS)]


def legend(names):
    """A list of the lines, as markup."""
    items = []
    for nr, name in enumerate(names):
        colour, kind = style(nr)
        items.append(f'<li><svg width="26" height="12" viewBox="0 0 26 12" aria-hidden="true">'
                     f'<path d="M0 6h26" stroke="{colour}" stroke-width="2"/>'
                     f'{mark(kind, 13, 6, colour)}</svg>{html.escape(name)}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def chart(title, x_label, y_label, points, lines, x_log, categories=None):
    """points: xs in order; lines: [(number of its style, {x: (low, mid, high)})].

    categories: {x: label} where x is only a place. None where nothing is to be seen.
    """
    values = [v for _, line in lines for v in line.values()]
    if not values:
        return None
    low, high = min(v[0] for v in values), max(v[2] for v in values)
    y_log = low > 0 and high / low >= LOG_FROM
    y = Axis(low if y_log else 0, high * (1 if y_log else 1.05) or 1, HEIGHT - BOTTOM, TOP, y_log)
    pad = 0.5 if categories else 0
    x = Axis(min(points) - pad, max(points) + pad, LEFT + 8, WIDTH - RIGHT - 8,
             x_log and not categories)
    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" class="chart">'
           f'<title>{html.escape(title)}</title>']
    out += grid(x, y, points, categories)
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" '
               f'text-anchor="middle">{html.escape(x_label)}</text>'
               f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" '
               f'text-anchor="middle">{html.escape(y_label)}</text>')
    for nr, line in lines:
        out += draw(x, y, nr, line, categories)
    return "".join(out) + "</svg>"


def grid(x, y, points, categories):
    out = []
    for value in y.ticks():
        at = y.at(value)
        out.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>'
                   f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">'
                   f'{short(value)}</text>')
    labels = [(p, categories[p]) for p in points] if categories else \
        [(v, short(v)) for v in x.ticks()]
    room = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    for value, label in labels:
        most = max(4, int(room / 6.2))
        text = label if len(label) <= most else label[:most - 1] + "…"
        out.append(f'<text x="{x.at(value):.1f}" y="{HEIGHT - BOTTOM + 18}" '
                   f'text-anchor="middle">{html.escape(text)}</text>')
    out.append(f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    return out


def draw(x, y, nr, line, categories):
    colour, kind = style(nr)
    at = [(x.at(p) + (7 * (nr - 2) if categories else 0), *map(y.at, line[p]))
          for p in sorted(line)]
    out = []
    if not categories and len(at) > 1:
        path = "L".join(f"{a[0]:.1f} {a[2]:.1f}" for a in at)
        out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for px, bottom, mid, top in at:
        out.append(f'<path d="M{px:.1f} {bottom:.1f}V{top:.1f}" stroke="{colour}"/>')
        out.append(mark(kind, px, mid, colour))
    return out
