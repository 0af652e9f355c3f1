"""The export of a cluster leaves out what may be confidential."""

import asyncio
import json

from tranche.client.cluster_export import snapshot


class Items:
    """A session that lists one TrainingJob."""

    async def items(self, path: str, what: str) -> list[bytes]:
        ended = {"index": 0, "attempt": 1, "node": "n1", "reason": "Failed", "why": "secret in a message"}
        progress = {
            "attempts": [ended],
            "history": ["1 worker-0 n1 Failed 1 - - 0 - x\nsecret in a log"],
            "done": "0-3",
        }
        job = {"metadata": {"name": "a"}, "spec": {}, "status": {"progress": progress}}
        return [json.dumps(job).encode()] if what == "TrainingJobs" else []


def test_export_has_no_log_lines_and_messages_of_attempts() -> None:
    taken, _ = asyncio.run(snapshot(Items(), "", "nvidia.com/gpu"))  # type: ignore[arg-type]
    (job,) = taken["items"]
    assert "secret" not in json.dumps(job)
    assert job["status"]["progress"]["done"] == "0-3"
    assert job["status"]["progress"]["attempts"][0]["reason"] == "Failed"
