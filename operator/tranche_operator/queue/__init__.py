"""The operator's work queue, deferred actions and resync."""
