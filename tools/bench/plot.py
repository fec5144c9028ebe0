# SPDX-License-Identifier: GPL-2.0
"""Charts as SVG text, for a page that needs nothing but itself.

Pure: numbers in, markup out. Debian's library for this would be twenty times our size,
and is not installed on machines under test. The charts are so narrow that their text is
readable in a window of 400 pixels.
"""
from __future__ import annotations

import html
import math
from typing import Any

from units import human

WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 84, 12, 14, 48
# A server looks the same everywhere. The colours are readable on white and on black.
STYLES = {
    "toboggan": ("#d9581c", "circle"), "toboggan-user": ("#2f74e0", "square"),
    "toboggan-sock": ("#9a5bd8", "diamond"), "nginx": ("#1f9650", "triangle"),
    "apache2": ("#0f94a8", "square"), "lighttpd": ("#b0850f", "diamond"),
    "h2o": ("#d23b78", "triangle"), "floor": ("#7a7f87", "circle"),
}
COLOURS = ("#d23b78", "#0f94a8", "#b0850f", "#9a5bd8", "#1f9650", "#2f74e0", "#d9581c")
MARKS = ("circle", "square", "triangle", "diamond")
LOG_FROM = 40               # largest over smallest, from which a vertical axis is logarithmic
BAR, BAR_GAP, GROUP_GAP = 13, 2, 24
REASON = 48                 # letters of why there is no figure
LETTER = 6.6                # pixels of one, on average


def style(name: str, nr: int = 0) -> tuple[str, str]:
    """(colour, mark) of a server; nr: its place among servers without a colour of their own."""
    return STYLES.get(name) or (COLOURS[nr % len(COLOURS)], MARKS[nr % len(MARKS)])


def styles(names: list[str]) -> dict:
    """{name: (colour, mark)}: known names always the same, others in their order."""
    other = [name for name in names if name not in STYLES]
    return {name: style(name, other.index(name) if name in other else 0) for name in names}


def nice_step(span: float) -> Any:
    raw = span / 5
    size = 10 ** math.floor(math.log10(raw))
    return next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw)


class Axis:
    """From values to pixels, with its ticks: [(value, label)]."""

    def __init__(self, low: float, high: float | None, start: float, end: float, log: bool) -> None:
        self.log = log and low > 0
        if self.log:
            low, high = math.log10(low), math.log10(high)
        if high <= low:
            low, high = (low - 0.5, low + 0.5) if self.log or low else (0, 1)
        self.low, self.high, self.start, self.end = low, high, start, end

    def at(self, value: Any) -> Any:
        x = math.log10(value) if self.log else value
        return self.start + (x - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list:
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
        return ret[::-(-len(ret) // 6) or 1]


def mark(kind: str, x: float, y: float, colour: str, hollow: Any = False) -> str:
    shapes = {"square": f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z",
              "triangle": f"M{x:.1f} {y - 5:.1f}l5 9h-10z",
              "diamond": f"M{x:.1f} {y - 5.5:.1f}l5.5 5.5l-5.5 5.5l-5.5 -5.5z"}
    paint = f'class="hollow" stroke="{colour}"' if hollow else f'fill="{colour}"'
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.2" {paint}/>'
    return f'<path d="{shapes[kind]}" {paint}/>'


def legend(names: list[str]) -> str:
    """A list of the lines, as markup."""
    items = []
    for name, (colour, kind) in styles(names).items():
        items.append(f'<li><svg width="26" height="12" viewBox="0 0 26 12" aria-hidden="true">'
                     f'<path d="M0 6h26" stroke="{colour}" stroke-width="2"/>'
                     f'{mark(kind, 13, 6, colour)}</svg>{html.escape(name)}</li>')
    return f'<ul class="legend">{"".join(items)}</ul>'


def text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def chart(title: str, x_label: str, unit: str, points: Any, lines: Any, x_log: bool,
          hollow: Any = (), diagonal: bool = False) -> str | None:
    """points: xs in order; lines: {server: {x: (low, mid, high[, mark])}}, with a break where
    one lacks.

    hollow: {server: {x: (value, why it is no figure)}}. diagonal: if both axes have the same
    quantity. None if there is nothing to draw.
    """
    hollow = dict(hollow)
    values = [v for line in lines.values() for v in line.values()]
    refused = [v for line in hollow.values() for v, _ in line.values() if v]
    if not values and not refused:
        return None
    low = min([v[0] for v in values] + refused)
    high = max([v[2] for v in values] + refused)
    # the diagonal is straight if both axes are of one kind
    y_log = low > 0 and (high / low >= LOG_FROM or (diagonal and x_log))
    y = Axis(low if y_log else 0, high * (1 if y_log else 1.05) or 1, HEIGHT - BOTTOM, TOP, y_log)
    x = Axis(min(points), max(points), LEFT + 8, WIDTH - RIGHT - 8, x_log)
    out = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" class="chart">'
           f'<title>{html.escape(title)}</title>']
    out += grid(x, y, unit)
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label))
    if diagonal:
        out.append(same(x, y))
    looks = styles(list(lines) + [name for name in hollow if name not in lines])
    for name, line in lines.items():
        out += draw(x, y, points, line, looks[name])
    for name, line in hollow.items():
        colour, kind = looks[name]
        out += [f"<g><title>{html.escape(f'{name}: no figure: {why}')}</title>"
                f"{mark(kind, x.at(p), y.at(value), colour, True)}</g>"
                for p, (value, why) in line.items() if value]
    return "".join(out) + "</svg>"


def same(x: Any, y: Any) -> str:
    """The line on which both values are equal."""
    def value(axis: Any, pixel: float) -> float:
        v = axis.low + (pixel - axis.start) / (axis.end - axis.start) * (axis.high - axis.low)
        return 10 ** v if axis.log else v

    at = []
    for i in range(101):
        px = x.start + (x.end - x.start) * i / 100
        v = value(x, px)
        if v > 0 or not y.log:
            py = y.at(v)
            if TOP <= py <= HEIGHT - BOTTOM:
                at.append(f"{px:.1f} {py:.1f}")
    return f'<path class="same" d="M{"L".join(at)}"/>' if at else ""


def grid(x: Any, y: Any, unit: str) -> list[str]:
    out = []
    for value in y.ticks():
        at = y.at(value)
        out.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>' +
                   text(LEFT - 6, at + 4, human(value, unit) if value else "0", "end"))
    taken = 0
    for value in x.ticks():
        words = human(value)
        half = len(words) * LETTER / 2
        if x.at(value) - half > taken and x.at(value) + half <= WIDTH:
            out.append(text(x.at(value), HEIGHT - BOTTOM + 18, words))
            taken = x.at(value) + half
    out.append(f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    return out


def draw(x: Any, y: Any, points: Any, line: str, look: Any) -> list[str]:
    colour, kind = look
    runs, out = [[]], []
    for p in points:
        if p in line:
            runs[-1].append((x.at(p), *map(y.at, line[p][:3]), "".join(line[p][3:])))
        elif runs[-1]:
            runs.append([])
    for run in runs:
        if len(run) > 1:
            path = "L".join(f"{a[0]:.1f} {a[2]:.1f}" for a in run)
            out.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for px, bottom, mid, top, sign in run:
            out.append(f'<path d="M{px:.1f} {bottom:.1f}V{top:.1f}" stroke="{colour}"/>')
            out.append(mark(kind, px, mid, colour))
            if sign:
                out.append(text(px, max(TOP, mid - 8), sign))
    return out


def short(reason: str) -> str:
    """As much of a reason as fits beside a bar; the whole of it appears under the pointer."""
    return reason if len(reason) <= REASON else reason[:REASON].rpartition(" ")[0] + " …"


def bars(title: str, unit: str, groups: list, names: list[str]) -> str | None:
    """Bars by group. groups: [(label, {server: (low, mid, high[, mark]) or why not})].

    Each bar has its figure beside it; a bar without a figure has the reason instead.
    """
    looks = styles(names)
    values = [v[1] for _, each in groups for v in each.values() if not isinstance(v, str)]
    if not values:
        return None
    scale = (WIDTH - 2 * RIGHT - 70) / (max(values) or 1)
    out, y = [], TOP
    for label, each in groups:
        out.append(text(4, y + 11, label, "start", ' class="strong"'))
        y += 17
        for name in [n for n in names if n in each]:
            value, colour = each[name], looks[name][0]
            if isinstance(value, str):
                out.append(f"<g><title>{html.escape(f'{name}: {value}')}</title>" +
                           f'<path d="M4 {y}h3v{BAR}h-3z" class="hollow" stroke="{colour}"/>' +
                           text(12, y + 11, "no figure: " + short(value), "start") + "</g>")
            else:
                width, figure = max(2.0, value[1] * scale), "".join(value[3:]) + \
                    human(value[1], unit)
                out.append(f"<g><title>{html.escape(f'{name}: {figure}')}</title>"
                           f'<path d="M4 {y}h{width:.1f}v{BAR}h-{width:.1f}z" fill="{colour}"/>' +
                           text(9 + width, y + 11, figure, "start") + "</g>")
            y += BAR + BAR_GAP
        y += GROUP_GAP - 17
    return f'<svg viewBox="0 0 {WIDTH} {y + 4}" role="img" class="chart">' \
        f"<title>{html.escape(title)}</title>{''.join(out)}</svg>"
