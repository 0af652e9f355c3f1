"""Dashboards and the metrics reference, generated from the registries, and pictures of dashboards from real runs."""
