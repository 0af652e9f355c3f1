"""What a simulation's user gets to see: tables, JSON, CSV, pictures and one page that holds them all.

Nothing here imports matplotlib until a picture is drawn, so that the commands start quickly and run without it.
"""

from tranche.reports.errors import ReportError
from tranche.reports.runs import ReportRun
from tranche.reports.tables import format_csv, format_json, format_table, job_rows
from tranche.reports.writers import check_report, write_report

__all__ = [
    "ReportError",
    "ReportRun",
    "check_report",
    "format_csv",
    "format_json",
    "format_table",
    "job_rows",
    "write_report",
]
