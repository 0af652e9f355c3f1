"""Extender of kube-scheduler, worker API for training pods, and the HTTP utilities that both share."""
