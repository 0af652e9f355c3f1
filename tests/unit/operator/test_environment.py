"""Environment variables of training containers."""

import json

from support.operator_objects import UID, plan, server, training_job, window
from tranche.kube.api.resources import PlannedParameterServer, PlannedWindow, TrainingJob
from tranche_operator.manifests.environment import chief_environment, server_environment, worker_environment
from tranche_worker.allocation import Communication, read_communication

DIRECTORY = "/var/lib/tranche/checkpoint"


def worker_of(job: TrainingJob, position: int = 0) -> dict[str, str]:
    assert job.status.plan is not None
    return worker_environment(job, job.status.plan.workers[position], DIRECTORY)


def test_a_worker_knows_its_chunks_and_what_is_durable_of_them() -> None:
    progress = {
        "running": [
            {"chunk": 7, "batches": 3.7, "attempt": 2},
            {"chunk": 5, "batches": 1160},
            {"chunk": 9, "batches": 0},
            {"chunk": 1, "batches": 8},
        ]
    }
    job = training_job(status={"plan": plan(window(2, 17, chunks=[5, 0, 7, 9])), "progress": progress})
    variables = worker_of(job)
    assert variables == {
        "TRANCHE_JOB": "lab/cats",
        "TRANCHE_JOB_UID": UID,
        "TRANCHE_INDEX": "2",
        "TRANCHE_ATTEMPT": "17",
        "TRANCHE_GRACE_SECONDS": "30",
        "TRANCHE_CHUNKS": "5,0,7,9",
        "TRANCHE_CHUNK_COUNT": "4",
        "TRANCHE_EPOCHS": "2",
        "TRANCHE_BATCHES": "10",
        "TRANCHE_RESUME": "5:1160,7:3",
        "TRANCHE_CHECKPOINT_DIR": DIRECTORY,
    }


def test_nothing_to_resume_is_an_empty_text() -> None:
    assert worker_of(training_job(status={"plan": plan(window(0, 1))}))["TRANCHE_RESUME"] == ""


def test_with_parameter_servers_everybody_knows_the_same_cluster() -> None:
    job = training_job(workers=2, servers=1, status={"plan": plan(window(1, 3), servers=[server(0, 2)])})
    assert job.status.plan is not None
    worker = json.loads(worker_of(job)["TF_CONFIG"])
    ps = json.loads(server_environment(job, job.status.plan.parameter_servers[0], DIRECTORY)["TF_CONFIG"])
    assert worker["cluster"] == ps["cluster"]
    assert worker["cluster"] == {
        "worker": ["cats-worker-0.cats.lab.svc:2222", "cats-worker-1.cats.lab.svc:2222"],
        "ps": ["cats-ps-0.cats.lab.svc:2222"],
    }
    assert worker["task"] == {"type": "worker", "index": 1}
    assert ps["task"] == {"type": "ps", "index": 0}


def test_with_a_chief_everybody_knows_it_too() -> None:
    status = {
        "plan": plan(window(0, 3), servers=[server(0, 2)], chief=server(0, 1)),
        "progress": {"running": [{"chunk": 0, "batches": 0.5}, {"chunk": 1, "batches": 0.25}]},
    }
    job = training_job(chunks=None, workers=2, servers=1, chief=True, status=status)
    assert job.status.plan is not None
    assert job.status.plan.chief is not None
    variables = chief_environment(job, job.status.plan.chief, DIRECTORY)
    of_chief, of_worker = json.loads(variables["TF_CONFIG"]), json.loads(worker_of(job)["TF_CONFIG"])
    assert of_chief["cluster"] == of_worker["cluster"]
    assert of_chief["cluster"]["chief"] == ["cats-chief-0.cats.lab.svc:2222"]
    assert of_chief["task"] == {"type": "chief", "index": 0}
    assert len(of_chief["cluster"]["worker"]) == 2
    assert (variables["TRANCHE_ATTEMPT"], variables["TRANCHE_RESUME"]) == ("1", "0:0.5,1:0.25")
    assert "TF_CONFIG" in worker_of(training_job(chunks=None, chief=True, status={"plan": plan(window(0, 3))}))


def test_gangs_on_the_network_of_a_node_have_ports_of_their_own() -> None:
    template = {"spec": {"hostNetwork": True, "containers": [{"name": "t", "image": "x"}]}}
    ports = []
    for uid in ("6f1c", "80aa"):
        job = training_job(uid=uid, chunks=None, workers=3, template=template, status={"plan": plan(window(2, 6))})
        variables = worker_of(job)
        assert variables["MASTER_PORT"] == variables["PET_MASTER_PORT"]
        ports.append(int(variables["MASTER_PORT"]))
    assert ports[0] != ports[1]
    assert all(20_000 <= port < 30_000 for port in ports)


def test_gang_member_environment_has_rank_and_master_address() -> None:
    job = training_job(chunks=None, workers=3, status={"plan": plan(window(2, 6))})
    variables = worker_of(job)
    expected = {
        "MASTER_ADDR": "cats-worker-0.cats.lab.svc",
        "MASTER_PORT": "29500",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "PET_NNODES": "3",
        "PET_NODE_RANK": "2",
        "PET_MASTER_ADDR": "cats-worker-0.cats.lab.svc",
        "PET_MASTER_PORT": "29500",
        "TRANCHE_CHUNK_COUNT": "3",
        "TRANCHE_EPOCHS": "1",
        "TRANCHE_BATCHES": "1",
    }
    assert {name: variables[name] for name in expected} == expected
    assert "TF_CONFIG" not in variables


def test_a_gang_of_one_connects_to_itself() -> None:
    variables = worker_of(training_job(chunks=None, workers=1, status={"plan": plan(window(0, 6))}))
    assert (variables["MASTER_ADDR"], variables["PET_MASTER_ADDR"]) == ("localhost", "localhost")


def test_torchrun_shutdown_timeout_equals_pod_grace_period() -> None:
    job = training_job(chunks=None, workers=3, status={"plan": plan(window(2, 6))})
    job.spec.workers.template["spec"]["terminationGracePeriodSeconds"] = 120
    variables = worker_of(job)
    assert variables["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == variables["TRANCHE_GRACE_SECONDS"] == "120"


def test_gang_member_environment_has_its_durable_progress() -> None:
    progress = {"done": "", "running": [{"chunk": 1, "batches": 0.25}, {"chunk": 2, "batches": 0.375}]}
    job = training_job(chunks=None, workers=3, status={"plan": plan(window(2, 6, chunks=[2])), "progress": progress})
    assert worker_of(job)["TRANCHE_RESUME"] == "2:0.375"


def test_a_chunked_worker_is_in_no_gang() -> None:
    window_ = PlannedWindow(index=0, attempt=1, site="s", fallbacks=[], chunks=[0])
    assert "WORLD_SIZE" not in worker_environment(training_job(), window_, DIRECTORY)


def test_a_parameter_server_has_no_chunks() -> None:
    entry = PlannedParameterServer(index=0, attempt=4, site="s", fallbacks=[])
    variables = server_environment(training_job(servers=1), entry, DIRECTORY)
    assert variables["TRANCHE_ATTEMPT"] == "4"
    assert "TRANCHE_CHUNKS" not in variables


def test_all_pods_know_how_the_job_communicates() -> None:
    communication = {"barrier": 2, "staleness": 0, "aggregation": "median", "serverBandwidth": "1G"}
    status = {"plan": plan(window(0, 1), servers=[server(0, 2)])}
    job = training_job(servers=1, spec={"communication": communication}, status=status)
    assert job.status.plan is not None
    variable = server_environment(job, job.status.plan.parameter_servers[0], DIRECTORY)["TRANCHE_COMMUNICATION"]
    assert variable == worker_of(job)["TRANCHE_COMMUNICATION"]
    assert read_communication(variable) == Communication(barrier=2, staleness=0, aggregation="median")
    assert "TRANCHE_COMMUNICATION" not in worker_of(training_job(status=status))
