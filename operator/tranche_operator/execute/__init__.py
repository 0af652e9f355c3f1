"""The operator's writes: actions carried out against the API server."""
