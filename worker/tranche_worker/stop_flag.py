"""A flag that a signal handler can set, whichever code it interrupts, and processes that ignore SIGTERM."""

import os
import signal
import threading
from contextlib import suppress


class StopFlag:
    """Replacement of `threading.Event` for signal handlers, which cannot be cleared.

    `Event.set` acquires a lock that `Event.wait` acquires too. A handler that interrupts the wait of its own thread at
    that time never returns. Here, the lock is held from the beginning: `set` only releases it, and thus never waits.
    """

    def __init__(self) -> None:
        """Create a flag that is not set."""
        self._is_set = False
        self._gate = threading.Lock()
        self._gate.acquire()

    def is_set(self) -> bool:
        """Return whether `set` has been called."""
        return self._is_set

    def set(self) -> None:
        """Set the flag, which ends the waits of all threads."""
        self._is_set = True
        with suppress(RuntimeError):  # the gate is open already
            self._gate.release()

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, but no longer than the given time; return whether it is set."""
        if not self._is_set and self._gate.acquire(timeout=min(max(0.0, seconds), threading.TIMEOUT_MAX)):
            self.set()  # opens the gate for the next thread
        return self._is_set


def ignore_sigterm(*_arguments: object) -> None:
    """Ignore SIGTERM in this process, unless its parent sends it: a ``worker_init_fn`` for the DataLoader of PyTorch.

    torchrun sends SIGTERM to the whole process group of a member. If a process of a DataLoader ends, the DataLoader
    raises an error in the training loop, so that nothing is saved. The training process ends its children by SIGTERM
    too, and waits for them when it exits.
    """
    parent = os.getppid()

    def wait_for_parent() -> None:
        while signal.sigwaitinfo([signal.SIGTERM]).si_pid != parent:
            pass
        os._exit(0)  # as the DataLoader's own handler does

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    threading.Thread(target=wait_for_parent, name="tranche-sigterm", daemon=True).start()
