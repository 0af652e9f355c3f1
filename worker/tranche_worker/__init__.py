"""What runs inside a training container; standard library only.

The least that training code needs to be preempted without losing work: `assignment` says which chunks to train and
where to resume, `report` leaves what is durable for the scheduler. Save on SIGTERM, report, exit.
"""

from tranche_worker.assignments import Assignment, assignment
from tranche_worker.messages import TERMINATION_LOG, report

__all__ = ["TERMINATION_LOG", "Assignment", "assignment", "report"]
