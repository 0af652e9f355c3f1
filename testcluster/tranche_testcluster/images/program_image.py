"""Image of one static program, such as kube-scheduler, whose official image is only in a registry."""

import shutil
import tempfile
from pathlib import Path

from .buildah import Recipe, build

_DOCKERFILE = """FROM scratch
COPY {program} /usr/local/bin/{program}
ENV PATH=/usr/local/bin
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/{program}"]
"""


def archive(image: str, program: Path) -> Path:
    """Build an image that runs this program and return its docker-archive.

    Raises:
        BuildError: buildah is missing or failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        dockerfile = context / "Dockerfile"
        dockerfile.write_text(_DOCKERFILE.format(program=program.name))
        shutil.copy(program, context / program.name)
        return build(Recipe(image, dockerfile, context))
