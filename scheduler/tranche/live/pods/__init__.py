"""Pods of jobs: planner events from changes and timeouts, and checks of absent pods, nodes and kube-scheduler."""
