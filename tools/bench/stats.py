# SPDX-License-Identifier: GPL-2.0
"""The little statistics that the reports need: ratios of pairs and their interval."""
import math
import statistics

# Student's t, two-sided 95 %, by degrees of freedom; beyond the table, the normal's.
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
       2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
       2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042)


def t95(freedom):
    return T95[freedom - 1] if freedom <= len(T95) else 1.96


def paired_ratio(ours, theirs):
    """a/b of neighbours: {ratio, low, high, pairs}; None without a pair.

    The ratio is the geometric mean of the pairs' ratios and the interval that
    of its logarithm at 95 %: halving and doubling are then equally far from 1.
    One pair has no interval.
    """
    logs = [math.log(a / b) for a, b in zip(ours, theirs)
            if a is not None and b is not None and a > 0 and b > 0]
    if not logs:
        return None
    mean = statistics.fmean(logs)
    ret = {"ratio": math.exp(mean), "low": None, "high": None, "pairs": len(logs)}
    if len(logs) > 1:
        half = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        ret["low"], ret["high"] = math.exp(mean - half), math.exp(mean + half)
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
