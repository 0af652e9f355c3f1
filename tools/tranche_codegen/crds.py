"""Generate the CustomResourceDefinitions from the models of `tranche.kube.api.resources`.

``python -m tranche_codegen.crds --kubeconfig FILE`` writes ``manifests/crds`` and the chart's files. With ``--check``
it writes nothing and exits with status 1 if the files differ from what it would write.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tranche.kube.api.resources import GROUP, VERSION, SiteObject, TrainingJob
from tranche.kube.client.client import ApiClient
from tranche_codegen.files import differences, generated_files, write_files
from tranche_codegen.pod_schema import OPENAPI_PATH, server_schema, staging_schema, template_schema, volume_schema
from tranche_codegen.structural_schema import Schema, structural_schema

REPOSITORY = Path(__file__).resolve().parents[2]
CATEGORY = "tranche"
"""Category, so that ``kubectl get tranche`` shows the jobs and the sites."""


def column(name: str, path: str, kind: str = "string", priority: int = 0, description: str = "") -> dict[str, Any]:
    """Build a column of ``kubectl get``; with priority 1, it is shown only with ``-o wide``.

    Times are strings, since type ``date`` prints an age and shows ``<invalid>`` for the future.
    """
    entry = {"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": description}
    return {key: value for key, value in entry.items() if value not in (0, "")}


_AGE = column("Age", ".metadata.creationTimestamp", "date", description="Time since the creation.")
_JOB_COLUMNS = [
    column("Phase", ".status.phase", description="Phase of the job."),
    column("Done", ".status.progress.chunks", description="Completed chunks over all chunks."),
    column("Trained", ".status.progress.trained", description="Mini-batches trained, as a share of all."),
    column("Workers", ".status.activeWorkers", "integer", description="Worker pods that exist."),
    column("Sites", ".status.sites", description="Sites where pods of the job run."),
    column(
        "Planned-Start",
        ".status.plan.estimatedStart",
        description="Expected start of the next worker; while workers run, start of the oldest one.",
    ),
    column("Planned-Completion", ".status.plan.estimatedCompletion", description="Expected end of the job."),
    column("Preemptions", ".status.progress.preemptions", "integer", description="Worker pods that were preempted."),
    _AGE,
    column("Why", ".status.plan.explanation", priority=1, description="Reason why the job runs or waits."),
]
_SITE_COLUMNS = [
    column("Tier", ".spec.tier", description="Edge or Cloud."),
    column("Nodes", ".status.nodes", "integer", description="Ready nodes."),
    column("GPUs", ".status.gpus", "integer", description="GPUs of these nodes."),
    column("Allocated", ".status.allocatedGpus", "integer", description="GPUs that pods hold."),
    column(
        "Connected",
        ".status.connected",
        "boolean",
        description="Whether a node of the site is ready or the site has no nodes.",
    ),
    _AGE,
]


def build_crds(openapi: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Build both definitions, by plural name, with schemas from the OpenAPI v3 document of the core group."""
    embedded = {
        "x-tranche-server-template": server_schema(openapi),
        "x-tranche-staging-template": staging_schema(openapi),
        "x-tranche-template": template_schema(openapi),
        "x-tranche-volume": volume_schema(openapi),
    }
    job = structural_schema(TrainingJob, embedded)
    site = structural_schema(SiteObject, embedded)
    return {
        "trainingjobs": _definition("TrainingJob", "trainingjobs", "Namespaced", ["tj"], job, _JOB_COLUMNS),
        "sites": _definition("Site", "sites", "Cluster", [], site, _SITE_COLUMNS),
    }


def _definition(
    kind: str, plural: str, scope: str, short_names: list[str], schema: Schema, columns: list[dict[str, Any]]
) -> dict[str, Any]:
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "categories": [CATEGORY],
        "shortNames": short_names,
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(schema)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {key: value for key, value in names.items() if value},
            "versions": [version],
        },
    }


def _root(schema: Schema) -> Schema:
    """Return the schema of the object: the API server defines the metadata, and the status is optional."""
    kind_fields: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    status = {key: value for key, value in schema["properties"]["status"].items() if key != "default"}
    return {
        **schema,
        "properties": {**schema["properties"], **kind_fields, "status": status},
        "required": ["spec"],
    }


async def fetch_schemas(kubeconfig: str) -> tuple[str, dict[str, Any]]:
    """Fetch the release of the API server and the OpenAPI v3 document of its core group.

    Raises:
        ApiError: the request is rejected; `Unreachable` if there is no response.
    """
    async with ApiClient.connect(kubeconfig) as client:
        version = await client.request("GET", "/version")
        return version["gitVersion"], await client.request("GET", OPENAPI_PATH)


@click.command()
@click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    required=True,
    type=click.Path(exists=True),
    help="API server to take the schemas from.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a committed file differs.")
@click.option("--root", default=REPOSITORY, type=click.Path(path_type=Path), help="Repository to write to.")
def main(kubeconfig: str, check: bool, root: Path) -> None:
    """Write manifests/crds and the chart's files."""
    version, openapi = asyncio.run(fetch_schemas(kubeconfig))
    files = generated_files(build_crds(openapi), version, root)
    if not check:
        write_files(files)
        click.echo(f"{len(files)} files written")
    elif differing := differences(files, root):
        click.echo("\n".join([*differing, "run python -m tranche_codegen.crds to bring them up to date"]))
        raise SystemExit(1)


if __name__ == "__main__":
    main()
