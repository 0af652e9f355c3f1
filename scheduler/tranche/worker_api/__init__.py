"""worker_api."""
