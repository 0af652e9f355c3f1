"""Generators of CRD manifests, chart schemas and reference pages; not part of the image."""
