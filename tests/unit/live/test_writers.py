import asyncio

import pytest

from tranche.kube.leases import DeposedError
from tranche.live import writers
from tranche.live.writers import StatusWriter


def test_who_waits_too_long_to_lead_again_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "LAPSE_SECONDS", 0.0)

    async def scenario() -> None:
        writer = StatusWriter(None, lambda _: None)  # type: ignore[arg-type]
        writer.put("/a", dict)
        await asyncio.wait_for(writer.run(lambda: False), 5.0)

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(scenario())
    assert raised.value.subgroup(DeposedError) is not None
