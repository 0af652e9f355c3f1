"""Kubernetes: custom resources, API client, watches, and conversion between API objects and planner values."""
