"""Forecasts: the expected course of the present plan, and the reasons why jobs wait. They do not change the planner."""
