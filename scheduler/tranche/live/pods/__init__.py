"""Pods of jobs: planner events from changes and time-outs, and checks of absent pods, nodes and kube-scheduler."""
