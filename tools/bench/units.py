# SPDX-License-Identifier: GPL-2.0
"""Figures in readable units: 3.3 µs, 1.9 ms, 130k/s, 87.6 Mbit/s, 12 KiB.

Pure. Used by the tables of the terminal, the page and its charts; files that
programs read have plain numbers.
"""
from __future__ import annotations

from typing import Any

TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
NS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
SI = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def digits(value: Any, nr: int = 3) -> str:
    """A number with this many significant digits; no exponent, comma or trailing zeros."""
    text = f"{float(f'{value:.{nr}g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scaled(value: Any, steps: Any) -> tuple[str, Any]:
    """(digits, name of the step) of a value."""
    value = float(f"{value:.3g}")       # 999.7 becomes a thousand
    for size, name in steps:
        if abs(value) >= size:
            return digits(value / size), name
    return digits(value / steps[-1][0]), steps[-1][1]


def human(value: Any, unit: str = "") -> str:
    """unit: the name in an experiment, such as `ns a request`; None has no text."""
    if value is None:
        return ""
    word = unit.partition(" ")[0]
    if word in NS:
        return " ".join(scaled(value * NS[word], TIMES)) if value else f"0 {word}"
    if word == "B":
        return " ".join(scaled(value, BINARY))
    if word == "%":
        return f"{digits(value)} %"
    text, letter = scaled(value, SI)
    if word in ("/s", "B/s"):
        return f"{text}{letter}/s" if word == "/s" else f"{text} {letter}{word}"
    if word == "bit/s":
        return f"{text} {letter}bit/s"
    return f"{text}{letter}" + f" {unit}" * bool(unit)
