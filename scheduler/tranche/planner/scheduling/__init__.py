"""Scheduling: which windows open and close in one decision, on which nodes, and which data are copied for that."""
