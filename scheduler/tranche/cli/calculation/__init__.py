"""Commands that calculate from their options alone: no cluster, no job log."""
