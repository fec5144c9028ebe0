# SPDX-License-Identifier: GPL-2.0
"""The little statistics that the reports need: ratios of pairs and their interval."""
import bisect
import math
import statistics

# Student's t, two-sided 95 %, by degrees of freedom; beyond 30 that of the next fewer known.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
       2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
       2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


T95_FROM, T95_BEYOND = (40, 60, 120), (2.042, 2.021, 2.000, 1.980)


def t95(freedom):
    return T95[freedom - 1] if freedom <= len(T95) else \
        T95_BEYOND[bisect.bisect_right(T95_FROM, freedom)]


def pairs_of(ours, theirs):
    """[(a, b)] of two {repeat: sample}; those that other work disturbed only without others."""
    both = [(s, theirs[r]) for r, s in sorted(ours.items()) if r in theirs]
    return [p for p in both if not any(s.get("disturbed") for s in p)] or both


def paired(key, unit, pairs):
    """How the first of some pairs of samples compare with the second, None without a pair.

    Percentages by what they differ, others by their ratio.
    """
    known = [(a[key], b[key]) for a, b in pairs
             if a.get(key) is not None and b.get(key) is not None]
    return (paired_difference if unit == "%" else paired_ratio)(*zip(*known)) if known else None


def interval(values):
    """(mean, low, high) at 95 %; one value has no interval."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None, None
    half = t95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def paired_difference(ours, theirs):
    """a - b of neighbours: {difference, low, high, pairs, dropped}."""
    mean, low, high = interval([a - b for a, b in zip(ours, theirs)])
    return {"difference": mean, "low": low, "high": high, "pairs": len(ours), "dropped": 0}


def paired_ratio(ours, theirs):
    """a/b of neighbours: {ratio, low, high, pairs, dropped}; ratio is None without a pair.

    The ratio is the geometric mean of the pairs' ratios and the interval that
    of its logarithm at 95 %: halving and doubling are then equally far from 1.
    Pairs with a 0 have none, and are counted as dropped.
    """
    logs = [math.log(a / b) for a, b in zip(ours, theirs) if a > 0 and b > 0]
    ret = {"ratio": None, "low": None, "high": None, "pairs": len(logs),
           "dropped": len(ours) - len(logs)}
    if logs:
        bounds = interval(logs)
        ret.update(zip(("ratio", "low", "high"),
                       (None if v is None else math.exp(v) for v in bounds)))
    return ret


def spread(values):
    """{median, min, max, n} of what was measured; None if nothing was."""
    values = [v for v in values if v is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "n": len(values)}


def at(xs, ys, x):
    """y at x, straight between neighbours on logarithmic axes, level outside."""
    known = sorted((a, b) for a, b in zip(xs, ys) if b)
    if not known:
        return None
    if x <= known[0][0]:
        return known[0][1]
    for (xa, ya), (xb, yb) in zip(known, known[1:]):
        if x <= xb:
            part = (math.log(x) - math.log(xa)) / (math.log(xb) - math.log(xa))
            return math.exp(math.log(ya) + part * (math.log(yb) - math.log(ya)))
    return known[-1][1] * x / known[-1][0]      # beyond: as much a byte as the largest
