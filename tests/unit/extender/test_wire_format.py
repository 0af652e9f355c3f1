import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.extender.wire_format import MalformedError, MetaPod, MetaVictims, decode_candidates, decode_names

POD = {
    "metadata": {"name": "a", "namespace": "ns", "creationTimestamp": None},
    "spec": {"containers": None},
    "status": {},
}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize("names", ["NodeNames", "nodeNames", "nodenames"])
@pytest.mark.parametrize("pod", ["Pod", "pod"])
def test_upper_and_lower_case_names_are_read(names: str, pod: str) -> None:
    decoded = decode_names(body(**{pod: POD, "Nodes": None, names: ["n1", "n2"]}))
    assert decoded.pod.metadata.name == "a"
    assert decoded.nodes == ["n1", "n2"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "the body: Input data was truncated"),
        (b"{", "the body: "),
        (b"[]", "the body: Expected `object`, got `array`"),
        (b"\xff", "the body: "),
        (b"[" * 100_000, "the body: "),
        (body(NodeNames=["n1"]), "Pod is missing"),
        (body(Pod=None, NodeNames=["n1"]), "Pod is missing"),
        (body(Pod=POD), "NodeNames is missing"),
        (body(Pod=POD, NodeNames=None, Nodes=None), "NodeNames is missing"),
        (body(Pod=POD, NodeNames=None, Nodes={"items": []}), "set nodeCacheCapable"),
        (body(Pod=POD, NodeNames="n1"), "NodeNames: Expected `array | null`"),
        (body(Pod={"metadata": {"name": 5}}, NodeNames=[]), "Pod: Expected `str`"),
    ],
)
def test_a_malformed_body_is_refused_with_a_clear_line(raw: bytes, text: str) -> None:
    with pytest.raises(MalformedError) as caught:
        decode_names(raw)
    assert text in str(caught.value)


def test_victims_are_read_as_uids_or_as_whole_pods_or_not_at_all() -> None:
    whole = {"n1": {"Pods": [{"metadata": {"uid": "u1"}, "spec": {}}], "NumPDBViolations": 2}}
    meta = {"n2": {"Pods": [{"UID": "u2"}]}, "n3": {"Pods": None}, "n4": None, "n5": {"pods": [{"uid": "u5"}, None]}}
    decoded = decode_candidates(body(Pod=POD, NodeNameToVictims=whole, NodeNameToMetaVictims=meta))
    assert decoded.victims == {
        "n1": MetaVictims([MetaPod("u1")], 2),
        "n2": MetaVictims([MetaPod("u2")]),
        "n3": MetaVictims(),
        "n4": MetaVictims(),
        "n5": MetaVictims([MetaPod("u5"), MetaPod("")]),
    }


def test_no_victims_at_all_are_an_empty_answer() -> None:
    assert decode_candidates(body(Pod=POD, NodeNameToVictims=None)).victims == {}


@given(ANY_JSON, ANY_JSON, ANY_JSON)
def test_any_json_is_read_or_refused(pod: Any, names: Any, victims: Any) -> None:
    raw = body(Pod=pod, NodeNames=names, NodeNameToMetaVictims=victims)
    for decode in (decode_names, decode_candidates):
        try:
            decode(raw)
        except MalformedError as error:
            text = str(error)
            assert "\n" not in text
