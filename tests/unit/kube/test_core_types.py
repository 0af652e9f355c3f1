import gc
import json

import msgspec

from tranche.kube.api.core_types import Pod


def test_the_collector_has_little_to_walk_through() -> None:
    terminated = {"exitCode": 0, "message": "", "startedAt": "2026-01-01T00:00:10Z"}
    raw = json.dumps(
        {
            "metadata": {"name": "a", "labels": {"x": "y"}, "annotations": {"k": "v"}},
            "spec": {
                "containers": [{"name": "main", "resources": {"requests": {"cpu": 1}}}],
                "tolerations": [{"key": "a"}],
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}],
            },
        }
    ).encode()
    decoder = msgspec.json.Decoder(Pod)
    kept = [decoder.decode(raw) for _ in range(100)]
    gc.collect()
    found, waiting = dict[int, object](), list[object](kept)
    while waiting:
        one = waiting.pop()
        if id(one) not in found:
            found[id(one)] = one
            waiting += parts_of(one)
    assert len(found) > 10 * len(kept)
    assert sum(map(gc.is_tracked, found.values())) < len(kept)


def parts_of(one: object) -> list[object]:
    """Return the objects to which an object refers; the collector sees none of a `Struct` that it does not track."""
    if isinstance(one, msgspec.Struct):
        return [getattr(one, field) for field in one.__struct_fields__]
    return gc.get_referents(one)
