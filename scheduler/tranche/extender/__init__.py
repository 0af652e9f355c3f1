"""The FastAPI application beside kube-scheduler: extender verbs, probes, metrics and the read-only API."""
