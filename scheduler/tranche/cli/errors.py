"""Errors of the command line: one line on stderr and exit status 2 for invalid input."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click


class InputError(click.ClickException):
    """Invalid input; the message names the problem, its place and the remedy."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class OneLineCommand(click.Command):
    """Command with one-line usage errors."""

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


class OneLineGroup(click.Group):
    """Group of commands with one-line usage errors."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments.

        Raises:
            InputError: they cannot be parsed.
        """
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise InputError(f"{error.format_message()} {self._remedy(info_name)}") from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments.

        Raises:
            InputError: there is no command of that name.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise InputError(f"{error.format_message()} {self._remedy(ctx.info_name)}") from None

    def _remedy(self, name: str | None) -> str:
        return f"Use {name} --help for the list of commands."


@contextmanager
def input_errors() -> Iterator[None]:
    """Convert exceptions of readers and builders to an `InputError`."""
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
