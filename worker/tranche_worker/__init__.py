"""What runs inside a training container; standard library only.

`Session` is the life of a worker: its batches, SIGTERM, reports, exit code. Code that needs less takes `assignment`,
which says what to train and where to resume, and `report`, which leaves what is durable for the scheduler. A parameter
server refuses old attempts by a `Fence` and reports for its job by a `Reporter`. Files that `checkpoints` saves stay
whole.
"""

from tranche_worker import checkpoints
from tranche_worker.assignment import Assignment, assignment
from tranche_worker.fence import Fence
from tranche_worker.reporter import Progress, Reporter
from tranche_worker.session import EXIT_DONE, EXIT_FENCED, EXIT_TERMINATED, EXIT_UNFINISHED, Session
from tranche_worker.termination_message import TERMINATION_LOG, report

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
