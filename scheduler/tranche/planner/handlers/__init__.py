"""Handlers: each applies one kind of event to the state, and records its effects on the context.

They import neither each other nor the planner; the actions on jobs that several handlers share are in
`tranche.planner.job_actions`.
"""
