"""Gains and losses of jobs by their place in the network: order, sensitivity, moves and preemption.

Source: design ours [I] after the abstract of GPU Cluster Scheduling for Network-Sensitive Deep Learning (Dally), arXiv
2401.16492: network-sensitive preemption. Of the paper, only the abstract was read. τ is the time of a mini-batch at a
topology level.
Worked numbers: docs/reference/systems/dally-like.md.
"""

MIN_QUANTUM_SECONDS = 600.0
"""Least time between two preemptions of one job."""
QUANTUM_RESTARTS = 10.0
"""Least time between two preemptions of one job, in restart costs."""


def relative_progress(batches_done: float, narrowest_seconds: float, age_seconds: float) -> float:
    """Return S: the time that the job's mini-batches take at the narrowest level, over its time since arrival.

    The network, or waiting, has delayed a job of small S the most.
    """
    return batches_done * narrowest_seconds / age_seconds if age_seconds > 0 else 0.0


def sensitivity(narrowest_seconds: float, widest_seconds: float) -> float:
    """Return R: the time of a mini-batch at the widest level over that at the narrowest one."""
    return widest_seconds / narrowest_seconds if narrowest_seconds > 0 else 1.0


def move_gain(batches_left: float, seconds: float, seconds_there: float, restart_seconds: float) -> float:
    """Return by how many seconds a running job ends earlier if it moves to another level."""
    return batches_left * (seconds - seconds_there) - restart_seconds


def preemption_gain(wait_seconds: float, batches_left: float, seconds_later: float, seconds_now: float) -> float:
    """Return by how many seconds a waiting job ends earlier if it starts now by preemption.

    Args:
        wait_seconds: Estimated time until it could start without preemption.
        batches_left: Its remaining mini-batches.
        seconds_later: Time of a mini-batch at the level that it would get then.
        seconds_now: Time of a mini-batch at the level that preemption gives it.
    """
    return wait_seconds + batches_left * (seconds_later - seconds_now)


def preemption_loss(
    restart_seconds: float, batches_left: float, seconds: float, seconds_next: float | None, wait_seconds: float
) -> float:
    """Return by how many seconds a victim ends later.

    Args:
        restart_seconds: Its restart cost.
        batches_left: Its remaining mini-batches.
        seconds: Time of a mini-batch at its present level.
        seconds_next: Time of a mini-batch at the narrowest level that is free for it then; None if it fits nowhere.
        wait_seconds: Training time of the waiting job, for which a victim that fits nowhere waits.
    """
    if seconds_next is None:
        return restart_seconds + wait_seconds
    return restart_seconds + batches_left * max(0.0, seconds_next - seconds)


def preemption_quantum(restart_seconds: float) -> float:
    """Return the least time between two preemptions of one job, in seconds."""
    return max(MIN_QUANTUM_SECONDS, QUANTUM_RESTARTS * restart_seconds)
