"""Between the API server and the values: resources, reflector, writes."""
