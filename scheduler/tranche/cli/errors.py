"""Errors of the command line: one line on stderr and exit status 2 for invalid input."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EPIPE
from typing import Any

import click


class InputError(click.ClickException):
    """Invalid input; the message names the problem, its place and the remedy."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@contextmanager
def _one_line(remedy: str = "") -> Iterator[None]:
    """Convert usage errors to an `InputError`, but not that of a group without arguments, which prints its help."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise InputError(f"{error.format_message()} {remedy}".rstrip()) from None


class OneLineCommand(click.Command):
    """Command with one-line usage errors."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments.

        Raises:
            InputError: they cannot be parsed.
        """
        with _one_line():
            return super().make_context(info_name, args, parent, **extra)


class OneLineGroup(click.Group):
    """Group of commands with one-line usage errors."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments.

        Raises:
            InputError: they cannot be parsed.
        """
        with _one_line(f"Options follow the command. {_list_of_commands(info_name)}"):
            return super().make_context(info_name, args, parent, **extra)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments.

        Raises:
            InputError: there is no command of that name.
        """
        with _one_line(_list_of_commands(ctx.info_name)):
            return super().resolve_command(ctx, args)


def _list_of_commands(name: str | None) -> str:
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


@contextmanager
def output_errors() -> Iterator[None]:
    """Convert a failure to write to stdout, such as that of a full disk, to an error of one line.

    A closed pipe is not converted: click ends the program without a message.

    Raises:
        click.ClickException: the output cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno == EPIPE:
            raise
        sys.stdout = None  # what is left in its buffer is not written when the program ends
        raise click.ClickException(f"the output cannot be written: {error.strerror or error}") from None
