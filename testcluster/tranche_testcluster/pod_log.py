"""Logs of the pods of a test cluster. No container runs, so the program that starts the cluster supplies them."""

import json
from collections.abc import Mapping
from pathlib import Path

_STAMP = "2026-01-01T00:00:00.000000000Z stdout F"


def write(folder: Path, texts: Mapping[str, str]) -> Path:
    """Write the files that kwok's kubelet port serves as logs, and the configuration that names them.

    Args:
        folder: Folder to create.
        texts: Log of all containers by key of the pod (``default/cats-worker-0-1``), which need not exist yet.
    """
    folder.mkdir()
    documents = []
    for number, (key, text) in enumerate(texts.items()):
        namespace, _, name = key.partition("/")
        file = folder / f"{number}.log"
        file.write_text("".join(f"{_STAMP} {line}\n" for line in text.splitlines()))
        metadata = {"namespace": namespace, "name": name}
        spec = {"logs": [{"logsFile": str(file)}]}
        documents.append({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Logs", "metadata": metadata, "spec": spec})
    target = folder / "logs.yaml"
    target.write_text("\n---\n".join(map(json.dumps, documents)))
    return target
