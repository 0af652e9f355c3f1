"""Faults of the network between the processes of tranche and the API server."""

import random
from collections.abc import Callable

from chaos.labs import Begin, Lab, Undo
from tranche_testcluster import Faults

CLIENTS = ("scheduler", "operator")


def _set(client: str, describe: str, make: Callable[[random.Random], Faults]) -> Begin:
    def begin(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
        proxy = lab.proxies[client]
        proxy.faults = make(chance)
        return f"{client}: {describe}", lambda: setattr(proxy, "faults", Faults())

    return begin


def _refusals(chance: random.Random) -> Faults:
    share = chance.uniform(0.05, 0.2)
    return Faults(refusals=dict.fromkeys((409, 429, 500, 503), share), refuse_reads=chance.random() < 0.5)


def _slow(chance: random.Random) -> Faults:
    return Faults(delay_seconds=(0.0, chance.uniform(0.5, 4.0)))


def _broken(chance: random.Random) -> Faults:
    return Faults(broken=chance.uniform(0, 0.3), unanswered=chance.uniform(0.1, 0.5))


def _held(chance: random.Random) -> Faults:
    return Faults(held=chance.choice(["/pods", "/trainingjobs", "/nodes"]))


def _cut(client: str) -> Begin:
    def begin(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
        proxy = lab.proxies[client]
        return f"{client}: {proxy.cut()} watches cut", proxy.cut

    return begin


FAULTS: dict[str, Begin] = {}
for _client in CLIENTS:
    FAULTS |= {
        f"refusals for {_client}": _set(_client, "409, 429, 500, 503", _refusals),
        f"slow answers for {_client}": _set(_client, "late requests", _slow),
        f"broken connections of {_client}": _set(_client, "broken connections, lost answers", _broken),
        f"silence for {_client}": _set(_client, "black hole", lambda chance: Faults(silent=True)),
        f"watches of {_client} behind": _set(_client, "watches of one kind lag behind", _held),
        f"cut watches of {_client}": _cut(_client),
    }
