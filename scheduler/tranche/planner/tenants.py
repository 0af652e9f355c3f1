"""Fair shares between tenants: who has had more than its share of recent GPU time, looked at once a minute at most."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from tranche.state.tenant_usage import REVIEW_SECONDS

if TYPE_CHECKING:
    from tranche.planner.machines import Planner


def review_shares(planner: Planner, now: float) -> bool:
    """Look who is above its share, if the policy asks and that was not done just before; whether it was done now."""
    shares = planner.cluster.shares
    if not shares.halflife_seconds or now < shares.reviewed + REVIEW_SECONDS:
        return False
    shares.review({state.job.tenant for state in planner.cluster.jobs.values() if state.active}, now)
    return True


def expect_review(planner: Planner, now: float, *, reviewed: bool) -> None:
    """Set the timer for the next look: when somebody passes its bound, or soon if none was taken at this decision."""
    shares = planner.cluster.shares
    if not shares.halflife_seconds or not any(held.gpus for held in shares.held.values()):
        return
    # Tenants may have come or gone since the last look.
    crossing = shares.next_crossing(now) if reviewed else shares.reviewed
    due = max(shares.reviewed + REVIEW_SECONDS, inf if crossing is None else crossing)
    if due < inf and not now < shares.review_at <= due:
        shares.review_at = due
        planner.wake(due, "")
