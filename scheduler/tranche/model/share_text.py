"""Share of the training that a job has behind it, as all outputs show it."""

from math import floor


def share_text(part: float, whole: float) -> str:
    """Return such as "3.4 %" or "31 %", rounded down so that 100 % means all; "" if the whole is nothing.

    >>> share_text(5687.3, 24000.0), share_text(1.0, 29.0), share_text(0.0, 10.0)
    ('23 %', '3.4 %', '0 %')
    """
    if whole <= 0:
        return ""
    percent = 100.0 * min(1.0, max(0.0, part / whole))
    return f"{floor(10 * percent) / 10:g} %" if percent < 10 else f"{floor(percent)} %"
