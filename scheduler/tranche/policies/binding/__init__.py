"""Policies that bind each chunk to a GPU slot when its job arrives."""
