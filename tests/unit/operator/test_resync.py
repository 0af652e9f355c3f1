"""When the operator lists all jobs and pods again."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from support.operator_objects import NOW, training_job
from support.virtual_time_loop import JumpingLoop, run
from tranche.kube.api.core_types import Metadata, Pod
from tranche.kube.api.names import FINALIZER_LEDGER, LABEL_ATTEMPT, LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from tranche.kube.client.client import ApiError
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.queue.resync import Resync
from tranche_operator.settings import Settings


def test_failed_list_is_repeated_after_the_requested_delay() -> None:
    async def main(loop: JumpingLoop) -> None:
        at: list[float] = []
        answers = [30.0, None]

        class Lists:
            """Lists of an API server, the first of which fail."""

            async def all_pods(self) -> AsyncIterator[Pod]:
                at.append(loop.time())
                if len(at) <= len(answers):
                    raise ApiError(429, "TooManyRequests", "slow down", retry_after=answers[len(at) - 1])
                return
                yield

            all_jobs = all_pods

        resync = Resync(Lists(), ReconcilerCache(), lambda key, delay: None, Settings(), lambda: NOW)  # type: ignore[arg-type]
        serving = asyncio.ensure_future(resync.serve())
        await asyncio.sleep(60.0)
        serving.cancel()
        await asyncio.wait([serving])
        assert at[:3] == [0.0, 30.0, 35.0]

    run(main)


def test_unreadable_job_is_enqueued_only_when_it_is_deleted() -> None:
    """Its pods are to be released: the deletion in the foreground waits for them."""

    def enqueued(*, deleting: bool) -> list[str]:
        job = training_job(deleting=deleting).model_dump(mode="json", by_alias=True)
        job["spec"]["workers"] = "elastic"  # as a newer release may have it
        labels = {LABEL_JOB: "cats", LABEL_ROLE: "worker", LABEL_INDEX: "0", LABEL_ATTEMPT: "1"}
        metadata = Metadata("cats-worker-0-1", "lab", "u", labels=labels, finalizers=(FINALIZER_LEDGER,))

        class Lists(Reader):
            """Lists with the job and its pod."""

            async def all_pods(self) -> AsyncIterator[Pod]:
                yield Pod(metadata)

            async def all_jobs(self) -> AsyncIterator[dict[str, Any]]:
                yield job

        cache, added = ReconcilerCache(), list[str]()
        lists = Lists(None, cache)  # type: ignore[arg-type]
        resync = Resync(lists, cache, lambda key, delay: added.append(key), Settings(), lambda: NOW)
        asyncio.run(resync.list_and_enqueue())
        return added

    assert enqueued(deleting=True) == ["lab/cats"]
    assert enqueued(deleting=False) == []
