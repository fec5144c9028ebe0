# SPDX-License-Identifier: GPL-2.0
"""The experiments, in the order of `toboggan bench --help` and of `all`.

Each class is one command of `toboggan bench`. engine.py takes the samples;
nothing in these modules checks one. A new experiment is a class in EXPERIMENTS.
"""
from __future__ import annotations

from contents import Tiers, Caches, Dynamic, Web99
from curves import Sizes, Small, Cold, PageSizes
from arrivals import Rates, Sessions
from clients import Ramp, KeepAlive, Objects, Connections, Cpus, Clients
from pressure import Overload, Held

EXPERIMENTS = {e.name: e for e in (Tiers, Rates, Sessions, Sizes, Small, Caches, Cold, Dynamic,
                                   PageSizes, Web99, Ramp, KeepAlive, Objects, Connections, Cpus,
                                   Overload, Held, Clients)}
