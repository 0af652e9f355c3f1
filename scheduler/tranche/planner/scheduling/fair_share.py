"""Fair shares: a review, at most once a minute, of which tenants have exceeded their share of recent GPU time.

It serves policies that count recent GPU time (`QueuePolicy.usage_halflife_seconds`).
"""

from math import inf

from tranche.planner.context import PlannerContext
from tranche.state.tenant_usage import REVIEW_SECONDS


def review_shares(context: PlannerContext, now: float) -> bool:
    """Compare tenants with their shares, at most once per `REVIEW_SECONDS`; returns whether it was done now."""
    shares = context.cluster.shares
    if now < shares.reviewed + REVIEW_SECONDS:
        return False
    shares.review({state.job.tenant for state in context.cluster.jobs.values() if state.active}, now)
    return True


def expect_review(context: PlannerContext, now: float, *, reviewed: bool) -> None:
    """Set the timer for the next review: when a tenant exceeds its share, or soon if this cycle had no review."""
    shares = context.cluster.shares
    if not any(held.gpus for held in shares.held.values()):
        return
    # Tenants may have come or gone since the last review.
    crossing = shares.next_crossing(now) if reviewed else shares.reviewed
    due = max(shares.reviewed + REVIEW_SECONDS, inf if crossing is None else crossing)
    if due < inf and not now < shares.review_at <= due:
        shares.review_at = due
        context.wake(due, "")
