"""Bad input ends a command with one line on stderr and exit status 2."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click


class InputError(click.ClickException):
    """What the user gave cannot be used; the message says what is wrong, where, and what to do."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class OneLineCommand(click.Command):
    """A command whose usage errors are one line, too."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments.

        Raises:
            InputError: they cannot be parsed.
        """
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            raise InputError(error.format_message()) from None


@contextmanager
def input_errors() -> Iterator[None]:
    """Turn what readers and builders raise about their input into an `InputError`."""
    try:
        yield
    except UnicodeError as error:
        raise InputError(f"the input is not valid UTF-8 text: {error}") from None
    except (ValueError, OverflowError) as error:
        raise InputError(str(error)) from None
    except MemoryError:
        raise InputError("out of memory; simulate fewer jobs with --limit") from None
    except OSError as error:
        raise InputError(f"{error.filename or 'input'}: {error.strerror or error}") from None
