"""``python -m support.doc_site FOLDER``: the pages of docs as HTML; a warning of Sphinx is an error (``make docs``)."""

import os
import subprocess
import sys
from pathlib import Path

from support.image_tools import ROOT, tool


def build(pages: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    """Run Sphinx on a folder of pages."""
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--builder", "html"]
    command = [str(tool("sphinx-build", "docs")), *options, str(pages), str(target)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def main(arguments: list[str]) -> int:
    """Build, and print the path or the errors."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m support.doc_site FOLDER\n")
        return 2
    answer = build(ROOT / "docs", Path(arguments[0]))
    if answer.returncode:
        sys.stderr.write(answer.stderr)
        return 1
    sys.stdout.write(f"{arguments[0]}/index.html\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
