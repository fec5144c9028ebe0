# SPDX-License-Identifier: GPL-2.0
"""Types of options for argparse: finite numbers in a range, and others, or a message why not.

Each makes argparse end with 2 and a line that names the option.
"""
from __future__ import annotations

import argparse
import math
import re
from typing import Any, Callable


def _read(kind: type[float] | type[int], text: Any, low: float, above: bool) -> Any:
    try:
        ret = kind(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(
            f"{text}: want a {'whole ' * (kind is int)}number") from e
    if not math.isfinite(ret) or ret < low or above and ret == low:
        raise argparse.ArgumentTypeError(
            f"{text}: want {'more than' if above else 'at least'} {low}")
    return ret


def positive(text: str) -> Any:
    """Seconds, rates: finite and above 0."""
    return _read(float, text, 0, True)


def not_negative(text: str) -> Any:
    return _read(float, text, 0, False)


def percent(text: str) -> Any:
    """From 0 to 100."""
    ret = _read(float, text, 0, False)
    if ret > 100:
        raise argparse.ArgumentTypeError(f"{text}: want at most 100")
    return ret


def whole(low: int = 1) -> Callable[..., Any]:
    """A whole number from low on."""
    return lambda text: _read(int, text, low, False)


def _different(kind: Any, text: Any) -> list:
    ret = [kind(word) for word in text.split(",")]
    if len(set(ret)) != len(ret):
        raise argparse.ArgumentTypeError(f"{text}: want different numbers")
    return ret


def wholes(low: int = 1, high: float | None = None) -> Callable[..., Any]:
    """'10,1' → [1, 10]: different whole numbers, from low to high."""
    def read(text: str) -> dict | list | None:
        ret = _different(whole(low), text)
        if high is not None and max(ret) > high:
            raise argparse.ArgumentTypeError(f"{text}: want at most {high}")
        return sorted(ret)
    return read


def positives(text: str) -> list:
    """'1,2.5' → [1.0, 2.5]: different ones, in their order."""
    return _different(positive, text)


def field_line(text: str) -> tuple[str, str]:
    """'Name: value' → (name, value), of RFC 9110 5."""
    if m := re.fullmatch(r"([!#$%&'*+.^_`|~\w-]+):[ \t]*([\t -~]*?)[ \t]*", text, re.A):
        return m[1], m[2]
    raise argparse.ArgumentTypeError(f"{text}: want NAME: VALUE")
