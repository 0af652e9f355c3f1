"""Controller that runs the planner on a cluster: watch changes in, status.plan and status.progress out."""
