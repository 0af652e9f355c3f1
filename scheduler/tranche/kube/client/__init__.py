"""The API client, the reflector and leader election."""
