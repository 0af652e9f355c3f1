"""Manifests of the pods that the operator creates."""
