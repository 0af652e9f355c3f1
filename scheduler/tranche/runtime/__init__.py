"""Process utilities: HTTP server, supervision, batching, rate limits and garbage collection."""
