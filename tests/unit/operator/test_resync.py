"""When the operator lists all jobs and pods again."""

import asyncio
from collections.abc import AsyncIterator

from support.operator_objects import NOW
from support.virtual_time_loop import JumpingLoop, run
from tranche.kube.api.core_types import Pod
from tranche.kube.client.client import ApiError
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
