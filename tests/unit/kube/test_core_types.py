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
    gc.collect()
    before = len(gc.get_objects())
    kept = [decoder.decode(raw) for _ in range(100)]
    gc.collect()
    assert len(gc.get_objects()) - before < len(kept)
