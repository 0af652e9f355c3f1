"""Errors that occur while a report is written."""


class ReportError(RuntimeError):
    """A report cannot be written; the text is one line that says why and what to do."""
