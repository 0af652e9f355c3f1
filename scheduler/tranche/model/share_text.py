"""Share of the training that a job has behind it, as all outputs show it."""

import re
from math import floor

_SHARE = re.compile(r"(?<=done, )(about )?[\d.]+ %(?= trained)")


def share_text(part: float, whole: float) -> str:
    """Return such as "3.4 %" or "31 %", rounded down so that 100 % means all; "" if the whole is nothing.

    >>> share_text(5687.3, 24000.0), share_text(1.0, 29.0), share_text(0.0, 10.0)
    ('23 %', '3.4 %', '0 %')
    """
    if whole <= 0:
        return ""
    percent = 100.0 * min(1.0, max(0.0, part / whole))
    return f"{floor(10 * percent) / 10:g} %" if percent < 10 else f"{floor(percent)} %"


def share_clause(share: str, *, estimated: bool) -> str:
    """Return the end of a sentence about a job that is not done, such as ", about 31 % trained"."""
    about = "about " if estimated and share != "0 %" else ""
    return f", {about}{share} trained"


def with_share(sentence: str, share: str) -> str:
    """Return an explanation that was written earlier with the present share; the same if it has none.

    >>> with_share("2 workers (2 at edge-a); 0 of 4 chunks done, about 0.8 % trained", "14 %")
    '2 workers (2 at edge-a); 0 of 4 chunks done, about 14 % trained'
    """
    return _SHARE.sub(lambda match: f"{match[1] or ''}{share}", sentence)
