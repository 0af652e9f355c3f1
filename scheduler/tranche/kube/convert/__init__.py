"""Conversion between API objects and the values of `tranche.model`."""
