"""Runner of a command that dies with its parent: ``python -I -S parent_watchdog.py PARENT_PID COMMAND...``.

The process becomes the command itself (same pid, so signals and exit codes need no forwarding) and leaves a small
watchdog behind that kills the command as soon as the parent is gone, however it went. PR_SET_PDEATHSIG would be
simpler, but it fires when the *thread* that forked ends, which kills children of short-lived threads.

Run as a file, not as a module: it must start in milliseconds and needs nothing but the standard library.
"""

import contextlib
import os
import select
import signal
import sys
import time

_POLL_SECONDS = 0.2  # where the kernel has no pidfd (macOS, old sandboxes)


def _exit_descriptor(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, or None where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _release_all_but(kept_descriptors: set[int | None]) -> None:
    """Close every other descriptor, so that a reader of the command's output sees its end."""
    for entry in os.listdir("/dev/fd"):
        if int(entry) not in kept_descriptors:
            with contextlib.suppress(OSError):
                os.close(int(entry))


def _guard(parent: int, command: int, parent_exit: int | None, command_exit: int | None) -> None:
    """Wait until the parent or the command ends; in the first case kill the command."""
    os.chdir("/")
    _release_all_but({parent_exit, command_exit})
    if parent_exit is None or command_exit is None:
        while _alive(parent) and _alive(command):
            time.sleep(_POLL_SECONDS)
        if _alive(command):
            os.kill(command, signal.SIGKILL)
        return
    poller = select.poll()
    poller.register(parent_exit, select.POLLIN)
    poller.register(command_exit, select.POLLIN)
    if command_exit not in (descriptor for descriptor, _ in poller.poll()):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(command_exit, signal.SIGKILL)


def main(arguments: list[str]) -> None:
    """Start the watchdog, then become the command."""
    parent, command, own = int(arguments[0]), arguments[1:], os.getpid()
    parent_exit, command_exit = _exit_descriptor(parent), _exit_descriptor(own)
    if os.getppid() != parent:  # the parent ended before the watch began
        sys.exit(f"watchdog: process {parent} is gone, {command[0]} is not started")
    if os.fork() == 0:
        os.setsid()  # so that Ctrl-C at the terminal does not end it
        if os.fork() == 0:  # a grandchild, so that the command has no child that it did not start
            _guard(parent, own, parent_exit, command_exit)
        os._exit(0)
    os.wait()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and the command would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.stderr.write(f"watchdog: cannot run {command[0]}: {error.strerror}\n")
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1:])
