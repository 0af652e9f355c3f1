"""The planner's mutable state, which policies read."""
