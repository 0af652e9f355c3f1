"""Options of policies: values that a policy cannot use are refused when it is chosen."""

import re
from dataclasses import fields

import pytest

from support.builders import gang, job, node
from tranche.policies import POLICIES, get_live_policy, get_policy, live_policies
from tranche.simulation.scenario import Scenario, run

NUMBERS = [
    f"{name}:{option.name}"
    for name, policy in sorted(POLICIES.items())
    for option in fields(policy)  # type: ignore[arg-type]
    if isinstance(getattr(policy, option.name), float | tuple)
]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chunk:aging=nan", "option aging of policy chunk needs a number, not 'nan'"),
        ("tiresias:limits=1/nan", "option limits of policy tiresias needs numbers separated by /, not '1/nan'"),
        ("chunk:aging=-3", "chunk needs aging ≥ 0"),
        ("chunk:copies=-1", "chunk needs copies ≥ 0"),
        ("chunk:price=-1", "chunk needs price ≥ 0"),
        ("chunk:fair=2", "chunk needs fair 0 or 1"),
        ("chunk:levels=-2", "chunk needs levels 0 or 1"),
        ("chunk:halflife=inf", "chunk needs a finite halflife > 0"),
        ("dorm:changes=inf", "dorm needs finite slack ≥ 0 and changes ≥ 0"),
        ("fifo:workers=inf", "fifo needs a whole number of workers, at least 0, not inf"),
        ("oasis:quanta=1e9", "oasis needs a finite slot ≥ 1, horizon from 0 to 10000 and quanta from 1 to 1000"),
        (
            "selector:jobs=inf",
            "selector needs finite jobs of at least 1, and a margin of at least 0 and less than 1",
        ),
    ],
)
def test_option_value_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        get_policy(text)


def test_option_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^policy chunk has the option aging twice$"):
        get_policy("chunk:aging=1:copies=2:aging=1")


@pytest.mark.parametrize("text", ["chunk:aging", "tiresias:order:limits=1"])
def test_option_without_a_value_is_said_to_lack_one(text: str) -> None:
    name, option = text.split(":")[:2]
    message = f"option {option} of policy {name} has no value; write {name}:{option}=value"
    with pytest.raises(ValueError, match=f"^{message}$"):
        get_policy(text)


@pytest.mark.parametrize("name", ["nope", "tiresias"])
def test_unknown_live_policy_is_refused_with_the_live_ones(name: str) -> None:
    with pytest.raises(ValueError, match=name) as refused:
        get_live_policy(name)
    assert str(refused.value).endswith(f"; choose one of: {', '.join(live_policies())}")
    assert "tiresias" not in live_policies()


@pytest.mark.parametrize("option", NUMBERS)
@pytest.mark.parametrize("value", ["inf", "1e300", "1e-300"])
def test_extreme_value_is_refused_at_once_or_works(option: str, value: str) -> None:
    text = f"{option}={value}"
    try:
        policy = get_policy(text)
    except ValueError:
        return
    jobs = [job("a", chunks=4, data_site="edge-a", chunk_bytes=1e8), job("b", 10.0, chunks=3, seconds=20.0)]
    jobs += [gang("c", 20.0), gang("d", 30.0, members=1)] if policy.traits.supports_gangs else []
    nodes = (node("n0", gpus=2), node("n1", "edge-b"))
    assert len(run(Scenario(tuple(jobs), nodes, policy=text, seed=1)).jobs) == len(jobs)
