import json

from tranche_worker import Fence


def test_an_older_attempt_of_the_slot_is_refused() -> None:
    fence = Fence()
    assert fence.admits(slot=0, chunks=[1], attempt=3)
    assert fence.admits(slot=0, chunks=[1], attempt=3)
    assert fence.admits(slot=0, chunks=[2], attempt=5)
    assert not fence.admits(slot=0, chunks=[1], attempt=3)


def test_fence_rejects_old_attempt_after_chunk_moved_to_new_slot() -> None:
    fence = Fence()
    assert fence.admits(slot=0, chunks=[1, 4], attempt=3)
    assert fence.admits(slot=1, chunks=[4], attempt=6)
    assert not fence.admits(slot=0, chunks=[1, 4], attempt=3)


def test_rejected_attempt_fences_off_no_other_attempt() -> None:
    fence = Fence()
    assert fence.admits(slot=1, chunks=[4], attempt=6)
    assert not fence.admits(slot=2, chunks=[7, 4], attempt=5)
    assert fence.admits(slot=3, chunks=[7], attempt=4)


def test_the_fence_outlives_its_server() -> None:
    fence = Fence()
    fence.admits(slot=0, chunks=[1, 2], attempt=9)
    again = Fence.load(json.loads(json.dumps(fence.dump())))
    assert again == fence
    assert not again.admits(slot=5, chunks=[2], attempt=8)
