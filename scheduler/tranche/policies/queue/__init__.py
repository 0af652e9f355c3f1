"""Policies that rank the jobs of one queue."""
