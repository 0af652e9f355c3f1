"""``python -m tranche_operator``."""

from tranche_operator.main import main

if __name__ == "__main__":
    main()
