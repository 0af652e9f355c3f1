"""Authentication and authorization of users and pods by the API server."""
