"""Images built with buildah, without Docker and without a registry: for real nodes, and for users without Docker.

``build`` builds a Dockerfile; ``debian_base.name`` is a base image of Debian packages; ``program_image.build`` packs
one static program. Archives are kept in the cache until what they are built from changes.
"""

from .buildah import Recipe, build

__all__ = ["Recipe", "build"]
