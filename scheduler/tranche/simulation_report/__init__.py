"""Reports of simulations: tables, JSON, CSV, pictures and one page that contains them all.

Nothing here imports matplotlib until a picture is drawn, so that the commands start quickly and run without it.
"""

from tranche.simulation_report.errors import ReportError
from tranche.simulation_report.report_run import Means, ReportRun
from tranche.simulation_report.table import format_csv, format_table, job_rows
from tranche.simulation_report.writer import check_report, write_report

__all__ = [
    "Means",
    "ReportError",
    "ReportRun",
    "check_report",
    "format_csv",
    "format_table",
    "job_rows",
    "write_report",
]
