"""Library for training containers; it needs only the standard library.

`Session` handles the lifecycle of a worker: batches, SIGTERM, reports, exit code. Code that needs less uses
`assignment` for the chunks and the point to resume from, and `report` to write durable progress for the scheduler. A
parameter server rejects old attempts with a `Fence` and reports for its job with a `Reporter`. `checkpoints` saves
files atomically. A handler of signals sets a `StopFlag`. The processes of a DataLoader call `ignore_sigterm`.

`Barrier` and `StalenessBound` synchronize the workers of a parameter server, `RateLimit` keeps a worker to its share of
the bandwidth, and `DoubleBuffer` communicates one batch beside the computation of the next.
"""

from tranche_worker import checkpoints
from tranche_worker.allocation import Allocation, Communication, Iterations
from tranche_worker.assignment import Assignment, assignment
from tranche_worker.barrier import Barrier, StalenessBound
from tranche_worker.double_buffer import DoubleBuffer
from tranche_worker.fence import Fence
from tranche_worker.rate_limit import RateLimit, TokenBucket
from tranche_worker.reporter import Progress, Reporter
from tranche_worker.session import EXIT_DONE, EXIT_FENCED, EXIT_TERMINATED, EXIT_UNFINISHED, Session
from tranche_worker.stop_flag import StopFlag, ignore_sigterm
from tranche_worker.termination_message import TERMINATION_LOG, report

__all__ = [
    "EXIT_DONE",
    "EXIT_FENCED",
    "EXIT_TERMINATED",
    "EXIT_UNFINISHED",
    "TERMINATION_LOG",
    "Allocation",
    "Assignment",
    "Barrier",
    "Communication",
    "DoubleBuffer",
    "Fence",
    "Iterations",
    "Progress",
    "RateLimit",
    "Reporter",
    "Session",
    "StalenessBound",
    "StopFlag",
    "TokenBucket",
    "assignment",
    "checkpoints",
    "ignore_sigterm",
    "report",
]
