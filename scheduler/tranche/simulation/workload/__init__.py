"""Workloads: jobs from logs and from published distributions."""
