"""FastAPI application beside kube-scheduler: extender verbs, probes and metrics."""
