"""The command ``tranche``."""
