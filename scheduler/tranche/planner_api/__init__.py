"""The planner's internal HTTP API, its client in the API process, and the address of the leader."""
