"""Errors in users' manifests, and the messages of the API server at apply time."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

Object = dict[str, Any]
Create = Callable[[Object], tuple[int, Any]]
Update = Callable[[Object, Object], tuple[int, Any]]
REMOVED = object()
WORKER = "spec.workers.template"
POD = f"{WORKER}.spec"
CONTAINER = f"{POD}.containers.0"


def edited(obj: Object, changes: dict[str, Any]) -> Object:
    """A copy with the values at these dotted paths set or removed; digits are list indices."""
    result = copy.deepcopy(obj)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place: Any = result
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
        if value is REMOVED:
            del place[last]
        else:
            place[int(last) if isinstance(place, list) else last] = value
    return result


SERVER = "spec.parameterServers.template.spec"
GPU_CONTAINER = {"name": "load", "image": "load", "resources": {"requests": {"amd.com/gpu": 1}}}
STAGING = "spec.data.staging.template"


def staged(changes: dict[str, Any]) -> dict[str, Any]:
    """A job with a valid staging template, and then these changes."""
    template = {"template": {"spec": {"containers": [{"name": "copy", "image": "copy"}]}}}
    data = {"spec.data.site": "edge-a", "spec.data.chunkSize": "1Mi", "spec.data.staging": template}
    return data | changes


JOBS: dict[str, tuple[dict[str, Any], str]] = {
    "name too long": ({"metadata.name": "a" * 51}, "metadata.name must have at most 50 characters"),
    "name begins with a digit": ({"metadata.name": "3d-net"}, "begin with a letter"),
    "name with a dot": ({"metadata.name": "resnet.50"}, "letters, digits and '-'"),
    "no workers": ({"spec.workers": REMOVED}, "spec.workers: Required value"),
    "staging asks for a GPU": (
        staged({f"{STAGING}.spec.containers.0.resources.limits": {"nvidia.com/gpu": 1}}),
        "a staging pod copies data: leave out GPUs",
    ),
    "parameter server asks for a GPU": (
        {f"{SERVER}.containers.0.resources.limits": {"nvidia.com/gpu": 1}},
        "parameter servers run without GPUs: leave them out",
    ),
    "parameter server starts with a GPU": (
        {f"{SERVER}.initContainers": [GPU_CONTAINER]},
        "parameter servers run without GPUs: leave them out",
    ),
    "staging of a MIG device": (
        staged({f"{STAGING}.spec.containers.0.resources.requests": {"nvidia.com/mig-1g.5gb": 1}}),
        "a staging pod copies data: leave out GPUs",
    ),
    "staging from nowhere": (
        {"spec.data.staging": staged({})["spec.data.staging"]},
        "staging needs site and chunkSize",
    ),
    "staging places its pod": (staged({f"{STAGING}.spec.nodeName": "n1"}), "tranche places the pods"),
    "unknown field": ({"spec.replicas": 3}, 'unknown field "spec.replicas"'),
    "zero chunks": ({"spec.data.chunks": 0}, "spec.data.chunks in body should be greater than or equal to 1"),
    "too many chunks": ({"spec.data.chunks": 2001}, "spec.data.chunks in body should be less than or equal to 2000"),
    "chunks as text": ({"spec.data.chunks": "27"}, "spec.data.chunks in body must be of type integer"),
    "no chunks": ({"spec.data": {"epochs": 2}}, "spec.data.chunks: Required value"),
    "zero weight": ({"spec.weight": 0}, "spec.weight in body should be greater than 0"),
    "foreign priority class": (
        {"spec.priorityClassName": "system-node-critical"},
        'supported values: "tranche-low", "tranche-normal", "tranche-high"',
    ),
    "chunk size is no quantity": ({"spec.data.chunkSize": "64 MB"}, "must be a quantity such as 64Mi"),
    "chunk size is negative": (
        {"spec.data.chunkSize": -1},
        "must be a quantity such as 64Mi, 1.5G or 500M, not negative",
    ),
    "duration is no duration": (
        {"spec.estimatedDuration": "2 hours"},
        "must be a duration such as 120ms, 90s or 1h30m",
    ),
    "duration is a number": ({"spec.estimatedDuration": 7200}, "spec.estimatedDuration in body must be of type string"),
    "duration is zero": (
        {"spec.model.stepTime": "0s"},
        "spec.model.stepTime: Invalid value: must be longer than zero",
    ),
    "duration of centuries": ({"spec.preemption.restartOverhead": "1000000h"}, "at most 87600h"),
    "step time and duration": (
        {"spec.model.stepTime": "100ms", "spec.estimatedDuration": "2h"},
        "give model.stepTime or estimatedDuration, not both",
    ),
    "minimum of a job with data": (
        {"spec.workers.minReplicas": 1},
        "workers.minReplicas is for jobs without data (gangs): leave it out",
    ),
    "topology of a job with data": (
        {"spec.workers.topology": {"required": "tranche.dev/rack"}},
        "workers.topology is for jobs without data (gangs)",
    ),
    "two topology levels": (
        {"spec.workers.topology": {"required": "tranche.dev/rack", "preferred": "tranche.dev/site"}},
        "name one topology level, either as required or as preferred",
    ),
    "data site with a line break": (
        {"spec.data.site": "edge-a\nforged"},
        "spec.data.site in body should match '^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$'",
    ),
    "topology level that is no label key": (
        {"spec.workers.topology": {"required": "a rack"}},
        "spec.workers.topology.required in body should match",
    ),
    "data and chief": (
        {"spec.chief": {"template": {"spec": {"containers": [{"name": "chief", "image": "train"}]}}}},
        "chief belongs to gangs: leave out data or chief",
    ),
    "no template": ({WORKER: REMOVED}, "spec.workers.template: Required value"),
    "empty template": ({WORKER: {}}, "spec.workers.template.spec: Required value"),
    "no containers": ({f"{POD}.containers": []}, "containers in body should have at least 1 items"),
    "containers left out": ({POD: {}}, "spec.workers.template.spec.containers: Required value"),
    "container without name": ({f"{CONTAINER}.name": REMOVED}, "containers[0].name: Required value"),
    "container without image": ({f"{CONTAINER}.image": REMOVED}, "containers[0].image: Required value"),
    "container with empty image": (
        {f"{CONTAINER}.image": ""},
        "containers[0].image in body should be at least 1 chars",
    ),
    "two containers of one name": (
        {f"{POD}.containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "y"}]},
        'containers[1]: Duplicate value: {"name":"a"}',
    ),
    "misspelt pod field": (
        {f"{POD}.nodeSelectors": {"a": "b"}},
        'unknown field "spec.workers.template.spec.nodeSelectors"',
    ),
    "misspelt pull policy": (
        {f"{CONTAINER}.imagePullPolicy": "always"},
        'supported values: "Always", "IfNotPresent", "Never"',
    ),
    "bad quantity in a request": (
        {f"{CONTAINER}.resources": {"requests": {"memory": "4 GB"}}},
        "resources.requests.memory in body should match",
    ),
    "restart always": ({f"{POD}.restartPolicy": "Always"}, "restartPolicy must be Never (or be left out)"),
    "restart on failure": ({f"{POD}.restartPolicy": "OnFailure"}, "restartPolicy must be Never (or be left out)"),
    "node name": ({f"{POD}.nodeName": "edge-a-0"}, "tranche places the pods: leave out nodeName"),
    "scheduler name": ({f"{POD}.schedulerName": "volcano"}, "leave out nodeName, schedulerName"),
    "scheduling gates": ({f"{POD}.schedulingGates": [{"name": "x"}]}, "nodeName, schedulerName and schedulingGates"),
    "hostname": ({f"{POD}.hostname": "w"}, "tranche names the pods, so that they find each other: leave out hostname"),
    "subdomain": ({f"{POD}.subdomain": "w"}, "leave out hostname, subdomain"),
    "priority class of the pod": ({f"{POD}.priorityClassName": "x"}, "and set spec.priorityClassName"),
    "priority of the pod": ({f"{POD}.priority": 1000}, "the priority belongs to the job"),
    "preemption policy of the pod": ({f"{POD}.preemptionPolicy": "Never"}, "the priority belongs to the job"),
    "label of ours": ({f"{WORKER}.metadata.labels": {"tranche.dev/job": "x"}}, "labels that begin with tranche.dev/"),
    "parameter server restarts": (
        {"spec.parameterServers.template.spec.restartPolicy": "Always"},
        "spec.parameterServers.template.spec.restartPolicy: Invalid value: tranche starts ended pods again",
    ),
    "ephemeral containers": (
        {f"{POD}.ephemeralContainers": [{"name": "debug", "image": "x"}]},
        'unknown field "spec.workers.template.spec.ephemeralContainers"',
    ),
    "checkpoint without source": ({"spec.checkpoint.volume": {}}, "volume in body should have at least 1 properties"),
    "checkpoint that ends with the pod": (
        {"spec.checkpoint.volume": {"emptyDir": {}}},
        "an emptyDir ends with its pod, so nothing could resume from it",
    ),
    "misspelt checkpoint scope": ({"spec.checkpoint.scope": "node"}, 'supported values: "Node", "Site", "Cluster"'),
    "misspelt preemption policy": ({"spec.preemption.policy": "Always"}, '"Immediate", "AtChunkEnd", "Never"'),
    "bandwidth of a pod without a suffix": (
        {"spec.communication.serverBandwidth": 400},
        "must be from 1k to 1P, in bits per second, such as 500M",
    ),
    "bandwidth above what runtimes take": (
        {"spec.communication.workerBandwidth": "2P"},
        "must be from 1k to 1P, in bits per second, such as 500M",
    ),
    "shares without a port": ({"spec.communication.bandwidthShares": "equal"}, "bandwidthShares needs serverBandwidth"),
    "shares of unknown gradients": (
        {"spec.communication": {"bandwidthShares": "equal", "serverBandwidth": "1G"}},
        "communication.bandwidthShares needs data, parameterServers and model.gradientSize",
    ),
    "unknown shares": (
        {"spec.communication.bandwidthShares": "sasp"},
        'supported values: "sasp-like", "equal", "proportional"',
    ),
    "batch of a job with data": (
        {"spec.communication": {"batching": "loft-like", "batchSize": 96}},
        "communication.batching is for jobs without data",
    ),
    "negative back-off limit": ({"spec.runPolicy.backoffLimit": -1}, "should be greater than or equal to 0"),
    "misspelt clean-up": ({"spec.runPolicy.cleanPodPolicy": "all"}, 'supported values: "All", "Running", "None"'),
}
GANGS: dict[str, tuple[dict[str, Any], str]] = {
    "elastic gang": ({"spec.workers.minReplicas": 1}, "a job without data is a gang: workers.minReplicas must equal"),
    "gang of more than it has": (
        {"spec.workers.minReplicas": 5},
        "a job without data is a gang: workers.minReplicas must equal",
    ),
    "gang of zero": ({"spec.workers.maxReplicas": 0}, "spec.workers.maxReplicas in body should be greater than"),
    "parameter servers without data": (
        {"spec.parameterServers.template": {"spec": {"containers": [{"name": "ps", "image": "train"}]}}},
        "parameterServers need data (chunks that workers train on their own) or a chief (a gang)",
    ),
    "batch to divide is unknown": ({"spec.communication.batching": "loft-like"}, "batching needs batchSize"),
    "batch below its parts": (
        {"spec.communication": {"batching": "loft-like", "batchSize": 7, "smallestPart": 4}},
        "batchSize must be at least smallestPart times workers.maxReplicas",
    ),
    "preempted at the end of a chunk": ({"spec.preemption.policy": "AtChunkEnd"}, "a job without data has no chunks"),
}
SITES: dict[str, tuple[dict[str, Any], str]] = {
    "name too long": ({"metadata.name": "a" * 64}, "metadata.name must have at most 63 characters"),
    "no selector": ({"spec.nodeSelector": REMOVED}, "spec.nodeSelector: Required value"),
    "selector of everything": (
        {"spec.nodeSelector": {}},
        "spec.nodeSelector in body should have at least 1 properties",
    ),
    "selector of an invalid value": (
        {"spec.nodeSelector": {"zone": "eu west"}},
        "spec.nodeSelector.zone in body should match '^([A-Za-z0-9]",
    ),
    "selector of a long value": ({"spec.nodeSelector": {"zone": "x" * 64}}, "spec.nodeSelector.zone: Too long"),
    "selector of an invalid key": ({"spec.nodeSelector": {"a zone": "eu"}}, "must have keys of labels"),
    "misspelt tier": ({"spec.tier": "edge"}, 'supported values: "Edge", "Cloud"'),
    "two links to one site": (
        {"spec.links": [{"to": "cloud", "bandwidth": "1G"}, {"to": "cloud", "bandwidth": "2G"}]},
        'spec.links[1]: Duplicate value: {"to":"cloud"}',
    ),
    "link without bandwidth": ({"spec.links.0.bandwidth": REMOVED}, "spec.links[0].bandwidth: Required value"),
    "link of no bandwidth": (
        {"spec.links.0.bandwidth": "0"},
        "spec.links[0].bandwidth: Invalid value: must be above zero",
    ),
    "bandwidth with a unit": ({"spec.links.0.bandwidth": "500Mbit/s"}, "must be a quantity such as 64Mi, 1.5G or 500M"),
    "negative bandwidth": ({"spec.links.0.bandwidth": -5}, "must be a quantity such as 64Mi, 1.5G or 500M"),
    "latency is a number": ({"spec.links.0.latency": 20}, "spec.links[0].latency in body must be of type string"),
    "bad tolerance": ({"spec.disconnectTolerance": "1 day"}, "must be a duration such as 120ms"),
}
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "other chunks": ({"spec.data.chunks": 5}, "chunks, epochs and batchesPerChunk cannot change"),
    "more epochs": ({"spec.data.epochs": 3}, "chunks, epochs and batchesPerChunk cannot change"),
    "other batches": ({"spec.data.batchesPerChunk": 11}, "chunks, epochs and batchesPerChunk cannot change"),
    "staging added": (staged({}), "staging cannot be added or removed"),
    "data removed": ({"spec.data": REMOVED, "spec.parameterServers": REMOVED}, "data cannot be added or removed"),
    "parameter servers removed": ({"spec.parameterServers": REMOVED}, "the trained model is in them"),
    "parameter servers scaled": ({"spec.parameterServers.replicas": 2}, "cannot be added, removed or scaled"),
}


@pytest.mark.parametrize(("changes", "message"), JOBS.values(), ids=JOBS)
def test_invalid_job_is_rejected_with_message(
    create: Create, job: Object, changes: dict[str, Any], message: str
) -> None:
    assert_refused(create(edited(job, changes)), message)


@pytest.mark.parametrize(("changes", "message"), GANGS.values(), ids=GANGS)
def test_invalid_gang_is_rejected_with_message(
    create: Create, gang: Object, changes: dict[str, Any], message: str
) -> None:
    assert_refused(create(edited(gang, changes)), message)


@pytest.mark.parametrize(("changes", "message"), SITES.values(), ids=SITES)
def test_invalid_site_is_rejected_with_message(
    create: Create, site: Object, changes: dict[str, Any], message: str
) -> None:
    assert_refused(create(edited(site, changes)), message)


@pytest.mark.parametrize(("changes", "message"), CHANGES.values(), ids=CHANGES)
def test_a_change_that_would_lose_finished_work_is_refused(
    update: Update, job: Object, changes: dict[str, Any], message: str
) -> None:
    assert_refused(update(job, edited(job, changes)), message)


def test_a_gang_keeps_its_size(update: Update, gang: Object) -> None:
    assert_refused(update(gang, edited(gang, {"spec.workers.maxReplicas": 3})), "the size of a gang cannot change")


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.suspend": True},
        {"spec.workers.maxReplicas": 4},
        {"spec.weight": 2.5},
        {"spec.priorityClassName": "tranche-high"},
        {f"{CONTAINER}.image": "train:2"},
        {"spec.data.site": "edge-b"},
        {
            "spec.model.gradientSize": "98Mi",
            "spec.communication": {"bandwidthShares": "sasp-like", "serverBandwidth": "1G", "barrier": 2},
        },
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_loses_nothing_may_change(update: Update, job: Object, changes: dict[str, Any]) -> None:
    status, answer = update(job, edited(job, changes))
    assert status == 200, answer


def assert_refused(answer: tuple[int, Any], message: str) -> None:
    status, body = answer
    assert status in (400, 422), body
    # Kubernetes 1.34 writes a type in place of the value.
    assert message in re.sub(r'Invalid value: "[^"]*": ', "Invalid value: ", body["message"])
