"""What runs inside a training container; standard library only.

`Session` is the life of a worker: its batches, SIGTERM, reports, exit code. Code that needs less takes `assignment`,
which says what to train and where to resume, and `report`, which leaves what is durable for the scheduler. A parameter
server refuses old attempts by a `Fence` and reports for its job by a `Reporter`. Files that `checkpoints` saves stay
whole.
"""

from tranche_worker import checkpoints
from tranche_worker.assignments import Assignment, assignment
from tranche_worker.fences import Fence
from tranche_worker.messages import TERMINATION_LOG, report
from tranche_worker.reporters import Progress, Reporter
from tranche_worker.sessions import EXIT_DONE, EXIT_FENCED, EXIT_TERMINATED, EXIT_UNFINISHED, Session

__all__ = [
    "EXIT_DONE",
    "EXIT_FENCED",
    "EXIT_TERMINATED",
    "EXIT_UNFINISHED",
    "TERMINATION_LOG",
    "Assignment",
    "Fence",
    "Progress",
    "Reporter",
    "Session",
    "assignment",
    "checkpoints",
    "report",
]
