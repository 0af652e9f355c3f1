"""Fair shares: which tenants have had more than their share of recent GPU time, reviewed once a minute at most.

For policies that count recent GPU time (`QueuePolicy.usage_halflife_seconds`).
"""

from math import inf

from tranche.planner.context import PlannerContext
from tranche.state.tenant_usage import REVIEW_SECONDS


def review_shares(context: PlannerContext, now: float) -> bool:
    """Compare tenants with their shares, unless that was done just before; returns whether it was done now."""
    shares = context.cluster.shares
    if now < shares.reviewed + REVIEW_SECONDS:
        return False
    shares.review({state.job.tenant for state in context.cluster.jobs.values() if state.active}, now)
    return True


def expect_review(context: PlannerContext, now: float, *, reviewed: bool) -> None:
    """Set the timer for the next look: when somebody passes its bound, or soon if none was taken at this decision."""
    shares = context.cluster.shares
    if not any(held.gpus for held in shares.held.values()):
        return
    # Tenants may have come or gone since the last look.
    crossing = shares.next_crossing(now) if reviewed else shares.reviewed
    due = max(shares.reviewed + REVIEW_SECONDS, inf if crossing is None else crossing)
    if due < inf and not now < shares.review_at <= due:
        shares.review_at = due
        context.wake(due, "")
