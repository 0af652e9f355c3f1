"""Between the API server and the values: resources, quantities, reflector, writes."""
