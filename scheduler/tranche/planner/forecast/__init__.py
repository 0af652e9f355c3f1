"""Forecasts: what is expected of the present plan, and why a job waits. They leave the planner as it is."""
