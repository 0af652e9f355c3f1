"""Errors of writing a report."""


class ReportError(RuntimeError):
    """Error of a report that cannot be written; the text is one line with the reason and the remedy."""
