"""Handlers: each applies one kind of event to the state, and records on the context what follows.

They import neither each other nor the planner; what several of them do to a job is in `tranche.planner.job_actions`.
"""
