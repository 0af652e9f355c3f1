"""Image of a real node that needs no registry: the pause program, and mount points for the machine's own programs.

A container of it runs a program of the machine when the pod mounts the machine's ``/usr``.
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

PAUSE_IMAGE = "testcluster.tranche.dev/pause:1"
_FOLDERS = ("etc", "proc", "sys", "dev", "tmp", "usr", "work")
_LINKS = ("bin", "lib", "lib64")  # into /usr, as on Debian
_PAUSE = "pause"


def write(archive: Path, pause: Path) -> None:
    """Write a docker-archive of the image with this static program."""
    layer = _layer(pause)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{_PAUSE}"], "Env": ["PATH=/usr/bin:/usr/local/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        for name, content in (("config.json", _json(config)), ("layer.tar", layer), ("manifest.json", _json(manifest))):
            _add(tar, name, content)


def _layer(pause: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in _FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
        for name in _LINKS:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        _add(tar, _PAUSE, pause.read_bytes(), 0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()
