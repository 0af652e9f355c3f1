"""Tables in Markdown."""

import json
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table; characters that would end a cell are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def cell(value: object) -> str:
    """Format a value as YAML on one line."""
    return f"`{json.dumps(value, ensure_ascii=False)}`"
