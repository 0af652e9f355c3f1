"""``python -m tranche``."""

from tranche.cli.main import main

main()
