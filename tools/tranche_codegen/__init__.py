"""tranche_codegen."""
