"""Generators of the pages of docs/reference; not part of the product."""
