"""Policies that allocate all workers again at each arrival and completion."""
