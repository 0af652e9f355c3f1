"""Times of the reviews that a queue policy makes at intervals, and of the timers for the next ones."""

from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class ReviewTimes:
    """Times in seconds on the planner's clock; -inf: never."""

    previewed: float = -inf
    """Time of the last preview of the queue for data copies (`data_replication.copy_for_head`)."""
    preview_timer_set: bool = False
    """Whether a timer for the next preview is set."""
    moves_reviewed: float = -inf
    """Time of the last review of moves to faster GPUs (`faster_gpu.move_to_faster`)."""
    moves_timer_set: bool = False
    """Whether a timer for the next review of moves is set."""
    cloud_review_at: float = -inf
    """Time of the next review of unlimited sites (`cloud_burst.review`)."""
    cloud_timer_at: float = -inf
    """Time for which a timer for that review is set."""
    period_timer_at: float = -inf
    """Time for which a timer for the next period of a worker distribution is set."""
