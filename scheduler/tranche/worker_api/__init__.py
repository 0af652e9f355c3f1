"""The HTTP API for training containers: progress reports and chunk requests."""
