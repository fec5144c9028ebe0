# SPDX-License-Identifier: GPL-2.0
"""The statistics that the reports need: ratios of pairs and their intervals."""
from __future__ import annotations

import functools
import math
import statistics
from typing import Any, Iterable

SURE = 0.05                 # the probability outside of an interval at 95 %
LEAST = 3                   # values for an interval: of two, it is 12.7 times their error wide


def by_chance(t: float, freedom: int) -> float:
    """The probability of a Student's t at least as far from 0, in either direction.

    Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle, odd = math.atan2(abs(t), math.sqrt(freedom)), freedom % 2
    series, term = 0.0, math.cos(angle) if odd else 1.0
    for i in range(odd, freedom - 1, 2):
        series += term
        term *= (i + 1) / (i + 2) * math.cos(angle) ** 2
    inside = math.sin(angle) * series
    return max(0.0, 1 - ((angle + inside) * 2 / math.pi if odd else inside))


@functools.cache
def t95(freedom: int) -> float:
    """Student's t, two-sided 95 %."""
    low, high = 1.9, 13.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if by_chance(middle, freedom) > SURE else (low, middle)
    return high


def holm(chances: list[float]) -> list[float]:
    """Correct probabilities for their number (Holm 1979).

    With corrected values of at most p, the probability that any of them is due to chance is p,
    however many there are.
    """
    ret, least = [0.0] * len(chances), 0.0
    for nr, i in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (len(chances) - nr) * chances[i]))
        ret[i] = least
    return ret


def pairs_of(ours: Any, theirs: dict) -> list:
    """[(a, b)] of two {repeat: sample}; disturbed ones only if there are no others."""
    both = [(s, theirs[r]) for r, s in sorted(ours.items()) if r in theirs]
    return [p for p in both if not any(s.get("disturbed") for s in p)] or both


def disturbed(row: Any) -> bool:
    """Whether every sample of a row of the summary was: the others alone make its figures."""
    return bool(row["disturbed"]) and row["disturbed"] == row["valid"]


def paired(key: str, unit: str, pairs: list) -> dict | None:
    """How the first of some pairs of samples compare with the second, None without a pair.

    Percentages are compared by their difference, others by their ratio.
    """
    known = [(a[key], b[key]) for a, b in pairs
             if a.get(key) is not None and b.get(key) is not None]
    return (paired_difference if unit == "%" else paired_ratio)(*zip(*known)) if known else None


def interval(values: Any) -> tuple:
    """(mean, low, high, chance) at 95 %; fewer than LEAST values have no interval.

    chance: the probability of such a mean if the values differ from 0 only by chance.
    """
    mean, freedom = statistics.fmean(values), len(values) - 1
    if len(values) < LEAST:
        return mean, None, None, None
    error = statistics.stdev(values) / math.sqrt(len(values))
    chance = by_chance(mean / error, freedom) if error else float(not mean)
    return mean, mean - t95(freedom) * error, mean + t95(freedom) * error, chance


def paired_difference(ours: Iterable[int], theirs: Any) -> dict:
    """a - b of neighbours: {difference, low, high, chance, pairs, dropped}."""
    mean, low, high, chance = interval([a - b for a, b in zip(ours, theirs)])
    return {"difference": mean, "low": low, "high": high, "chance": chance, "pairs": len(ours),
            "dropped": 0}


def paired_ratio(ours: Iterable[int], theirs: Any) -> dict[str, int | None]:
    """a/b of neighbours: {ratio, low, high, chance, pairs, dropped}; ratio is None without a pair.

    The ratio is the geometric mean of the pairs' ratios and the interval that
    of its logarithm at 95 %: halving and doubling are then equally far from 1.
    Pairs with a 0 have none, and are counted as dropped.
    """
    logs = [math.log(a / b) for a, b in zip(ours, theirs) if a > 0 and b > 0]
    ret = {"ratio": None, "low": None, "high": None, "chance": None, "pairs": len(logs),
           "dropped": len(ours) - len(logs)}
    if logs:
        *bounds, ret["chance"] = interval(logs)
        ret.update(zip(("ratio", "low", "high"),
                       (None if v is None else math.exp(v) for v in bounds)))
    return ret


def spread(values: Any) -> dict | None:
    """{median, min, max, n} of the values; None without any."""
    values = [v for v in values if v is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "n": len(values)}


def at(xs: list[float], ys: list[float], x: float) -> float | None:
    """y at x, interpolated linearly on logarithmic axes, constant outside."""
    known = sorted((a, b) for a, b in zip(xs, ys) if b)
    if not known:
        return None
    if x <= known[0][0]:
        return known[0][1]
    for (xa, ya), (xb, yb) in zip(known, known[1:]):
        if x <= xb:
            part = (math.log(x) - math.log(xa)) / (math.log(xb) - math.log(xa))
            return math.exp(math.log(ya) + part * (math.log(yb) - math.log(ya)))
    return known[-1][1] * x / known[-1][0]      # beyond: the cost per byte of the largest
