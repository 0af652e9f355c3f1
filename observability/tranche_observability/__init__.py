"""Dashboards, alert rules and the reference of metrics: generated from the registries, and drawn from real runs."""
