"""Discrete-event simulation engine."""
