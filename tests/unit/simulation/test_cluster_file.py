"""Clusters of the simulator: pools and YAML files, good and broken."""

import pickle
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tranche.estimate import NetworkPrior, bits_per_second
from tranche.model import Link, Resources, Tier
from tranche.simulation import cluster_file
from tranche.simulation.cluster_spec import GPU_LABEL, ClusterError, ClusterSpec, pool, read_cluster
from tranche.simulation.scenario import NodeFailure

SAMPLE = Path(__file__).resolve().parents[3] / "docs/samples/cluster.yaml"
SMALL = """\
gpuKinds: {V100: 1.0, T4: 0.42}
sites:
- {name: edge, links: [{to: cloud, bandwidth: 500M, latency: 20ms}], nodes: [{count: 2, gpus: 4, gpu: T4, cpu: 500m}]}
- {name: cloud, tier: Cloud, unlimited: true}
failures: [{node: edge-1, at: 10}]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.yaml"


def complaint(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ClusterError) as caught:
        read_cluster(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable()
    return message.removeprefix(f"{path}: ")


def test_the_start_of_a_node_on_demand_is_read_as_a_duration(path: Path) -> None:
    path.write_text("sites: [{name: cloud, unlimited: true, nodeStartup: 3m}]")
    (cloud,) = read_cluster(path).sites
    assert (cloud.unlimited, cloud.start_seconds) == (True, 180.0)


def test_a_pool_is_one_node_that_only_its_gpus_limit() -> None:
    spec = pool(128)
    (node,) = spec.nodes
    assert (node.name, node.site, node.allocatable.gpus, [site.name for site in spec.sites]) == (
        "pool",
        "pool",
        128,
        ["pool"],
    )
    assert Resources(cpu=128 * 64_000, memory=128 * 2**40, gpus=128, pods=10_000).fits(node.allocatable)


@pytest.mark.parametrize("gpus", [0, -1, 100_001])
def test_a_pool_of_no_or_absurdly_many_gpus_is_refused(gpus: int) -> None:
    with pytest.raises(ClusterError, match="choose 1 to 100,000"):
        pool(gpus)


def test_the_sample_of_the_documentation_can_be_read() -> None:
    spec = read_cluster(SAMPLE)
    assert spec.name == "cluster"
    assert [(site.name, site.tier, site.unlimited) for site in spec.sites] == [
        ("edge-a", Tier.EDGE, False),
        ("edge-b", Tier.EDGE, False),
        ("edge-c", Tier.EDGE, False),
        ("cloud", Tier.CLOUD, False),
    ]
    assert sum(node.allocatable.gpus for node in spec.nodes) == 12 + 8 + 4 + 8 + 32
    assert [node.name for node in spec.nodes if node.site == "edge-b"] == ["edge-b-0", "edge-b-1", "edge-b-2"]
    nodes = {node.name: node for node in spec.nodes}
    assert nodes["edge-a-2"].allocatable == Resources(32_000, 128 * 2**30, 4, 10**6)
    assert [nodes[name].speed for name in ("cloud-3", "edge-b-0", "edge-b-1")] == [1.0, 0.81, 0.42]
    assert nodes["edge-b-2"].labels == {GPU_LABEL: "T4", "tranche.dev/rack": "b2"}
    assert spec.failures == (NodeFailure("edge-a-0", 3600.0, 7200.0),)


def test_link_counts_for_both_directions_unless_reverse_is_given() -> None:
    sites = {site.name: site for site in read_cluster(SAMPLE).sites}
    prior = NetworkPrior()
    assert sites["edge-a"].links["cloud"] == Link(500e6, 0.02)
    assert bits_per_second(prior, sites, "edge-b", "edge-a") == 1e9
    assert bits_per_second(prior, sites, "cloud", "edge-b") == 500e6
    assert bits_per_second(prior, sites, "cloud", "edge-a") == 1e9
    assert bits_per_second(prior, sites, "edge-a", "cloud") == 500e6
    assert bits_per_second(prior, sites, "edge-c", "edge-c") == 25e9


def test_a_node_without_a_kind_has_the_speed_that_was_measured(path: Path) -> None:
    path.write_text("sites: [{name: a, nodes: [{gpus: 2}]}]")
    (node,) = read_cluster(path).nodes
    assert (node.speed, dict(node.labels), node.allocatable.gpus) == (1.0, {}, 2)
    assert Resources(10**8, 2**50, 2, 10**5).fits(node.allocatable)


def test_a_failure_without_end_lasts(path: Path) -> None:
    path.write_text(SMALL)
    spec = read_cluster(path)
    assert spec.failures == (NodeFailure("edge-1", 10.0, float("inf")),)
    assert [site.unlimited for site in spec.sites] == [False, True]
    assert spec.nodes[0].allocatable.cpu == 500


def test_network_section_gives_levels_with_capacities() -> None:
    spec = read_cluster(SAMPLE)
    assert spec.topology.labels == ("kubernetes.io/hostname", "tranche.dev/rack", "tranche.dev/site")
    assert spec.level_network is not None
    assert spec.level_network.bits_per_second == (300e9, 100e9, 10e9, 1e9)
    assert pool(4).level_network is None


def test_a_cluster_can_be_sent_to_another_process() -> None:
    for spec in (read_cluster(SAMPLE), pool(4)):
        assert pickle.loads(pickle.dumps(spec)) == spec


NODE = "nodes: [{gpus: 1}]"


def test_node_may_fail_again_when_it_is_back(path: Path) -> None:
    path.write_text(f"sites: [{{name: a, {NODE}}}]\nfailures: [{{node: a-0, at: 9}}, {{node: a-0, at: 1, until: 9}}]")
    assert [failure.at for failure in read_cluster(path).failures] == [9.0, 1.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must be a mapping with the key sites"),
        ("- a", "must be a mapping with the key sites"),
        ("{}", "sites: Field required"),
        ("sites: []", "sites: List should have at least 1 item"),
        ("sites: {a: 1}", "sites: Input should be a valid list"),
        (
            "network: {levels: [{label: tranche.dev/rack, bandwidth: 1G}]}\nsites: [{name: a}]",
            "network: the last level must have the label tranche.dev/wan",
        ),
        ("site: []\nsites: [{name: a}]", "site: unknown field: choose among failures, gpuKinds, network, sites"),
        (f"sites: [{{name: a, gpu: 1, {NODE}}}]", "sites[0].gpu: unknown field: choose among"),
        ("sites: [{name: a, nodes: [{gpu_count: 1}]}]", "choose among count, cpu, gpu, gpus, labels, memory, pods"),
        ("sites: [{name: a, links: [{to: a, mbps: 1}]}]", "sites[0].links[0].bandwidth: Field required"),
        (f"sites: [{{name: A_b, {NODE}}}]", "sites[0].name: must be lower case letters, digits and '-'"),
        (f"sites: [{{name: 7, {NODE}}}]", "sites[0].name: Input should be a valid string"),
        (f"sites: [{{name: a, tier: Fog, {NODE}}}]", "sites[0].tier: Input should be 'Edge' or 'Cloud'"),
        (f"sites: [{{name: a, {NODE}}}, {{name: a, {NODE}}}]", "sites[1].name: there is a site a already"),
        ("sites: [{name: a}]", "no node has a GPU and no site is unlimited"),
        (f"sites: [{{name: a, unlimited: true, {NODE}}}]", "sites[0]: an unlimited site makes nodes on demand"),
        ("sites: [{name: a, nodes: [{gpus: -1}]}]", "sites[0].nodes[0].gpus: Input should be greater than or equal"),
        ("sites: [{name: a, nodes: [{gpus: 1.5}]}]", "sites[0].nodes[0].gpus: Input should be a valid integer"),
        ("sites: [{name: a, nodes: [{gpus: 100001}]}]", "gpus: Input should be less than or equal to 100000"),
        ("sites: [{name: a, nodes: [{count: 100001}]}]", "count: Input should be less than or equal to 100000"),
        ("sites: [{name: a, nodes: [{count: 0}]}]", "count: Input should be greater than or equal to 1"),
        ("sites: [{name: a, nodes: [{count: 60000}, {count: 60000, gpus: 1}]}]", "120,000 nodes, at most 100,000"),
        ("sites: [{name: a, nodes: [{count: 1000, gpus: 10000}]}]", "10,000,000 GPUs, at most 1,000,000"),
        ("sites: [{name: a, nodes: [{gpus: 1, cpu: lots}]}]", "nodes[0].cpu: 'lots' is not a quantity such as 64Mi"),
        ("sites: [{name: a, nodes: [{gpus: 1, memory: -1Gi}]}]", "nodes[0].memory: -1Gi must be at least 0 bytes"),
        ("sites: [{name: a, nodes: [{gpus: 1, memory: true}]}]", "nodes[0].memory: must be a quantity such as 64Mi"),
        ("sites: [{name: a, nodes: [{gpus: 1, gpu: A100}]}]", "'A100' is not in gpuKinds (it is empty)"),
        ("gpuKinds: {T4: 0}\nsites: [{name: a}]", "gpuKinds.T4: Input should be greater than or equal to 0.000001"),
        ("gpuKinds: {T4: .nan}\nsites: [{name: a}]", "gpuKinds.T4: Input should be a finite number"),
        ("gpuKinds: {T4: .inf}\nsites: [{name: a}]", "gpuKinds.T4: Input should be"),
        (f"sites: [{{name: a, {NODE}, links: [{{to: b, bandwidth: 1G}}]}}]", "links[0].to: there is no site b"),
        (
            f"sites: [{{name: a, {NODE}, links: [{{to: a, bandwidth: 1G}}, {{to: a, bandwidth: 2G}}]}}]",
            "sites[0].links[1].to: there is a link to a already",
        ),
        (f"sites: [{{name: a, {NODE}, links: [{{to: a, bandwidth: 0}}]}}]", "bandwidth: 0 must be at least 1 bit/s"),
        (
            f"sites: [{{name: a, {NODE}, links: [{{to: a, bandwidth: 1G, latency: 20}}]}}]",
            "links[0].latency: must be a duration such as 20ms",
        ),
        (f"sites: [{{name: a, {NODE}}}]\nfailures: [{{node: a-1, at: 1}}]", "failures[0].node: there is no node 'a-1'"),
        (f"sites: [{{name: a, {NODE}}}]\nfailures: [{{node: a-0, at: -1}}]", "failures[0].at: Input should be greater"),
        (
            f"sites: [{{name: a, {NODE}}}]\nfailures: [{{node: a-0, at: 5, until: 5}}]",
            "failures[0]: until (5) must be after at (5)",
        ),
        (
            f"sites: [{{name: a, {NODE}}}]\nfailures: [{{node: a-0, at: 5}}, {{node: a-0, at: 1, until: 10}}]",
            "failures: node a-0 fails at 5, but it is away from 1 to 10",
        ),
        (
            f"sites: [{{name: a, {NODE}}}]\nfailures: [{{node: a-0, at: 1}}, {{node: a-0, at: 9}}]",
            "failures: node a-0 fails at 9, but it is away from 1 on",
        ),
        (f"sites: [{{name: a, {NODE}}}]\nfailures: [{{node: a-0, at: 1e12}}]", "failures[0].at: Input should be less"),
        (
            f"sites: [{{name: a, {NODE}}}]\nfailures: [{{node: a-0, at: 5, until: 1e300}}]",
            "failures[0].until: Input should be less than or equal to 100000000000",
        ),
        (
            "gpuKinds: {T4: 1e-300}\nsites: [{name: a}]",
            "gpuKinds.T4: Input should be greater than or equal to 0.000001",
        ),
        ("sites: [{name: a, name: b}]", "is not valid YAML: 'name' appears twice"),
        ("sites: [", "is not valid YAML: "),
        ("sites: !!python/object/apply:os.system [ls]", "is not valid YAML: could not determine a constructor"),
        ("a: " + "9" * 5000, "Exceeds the limit"),
        ("a: 2026-02-31", "day is out of range"),
        ("a: &a [*a]", "has more than 1,000,000 values"),
        (b"\xff\xfe", "is not text in UTF-8"),
        ("a: \0", "is not valid YAML: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_its_place(path: Path, text: str | bytes, words: str) -> None:
    assert words in complaint(path, text)


def test_a_short_file_that_aliases_make_huge_is_refused(path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "has more than 1,000,000 values" in complaint(path, "\n".join(lines))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_a_deeply_nested_file_is_refused(path: Path, opening: str) -> None:
    assert "is nested more than 50 levels deep" in complaint(path, opening * 100_000)


def test_a_large_file_is_refused_unread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_file, "MAX_BYTES", 1000)
    assert "is larger than 10 MB" in complaint(path, "#" * 1001)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path, "Is a directory"), (tmp_path / "none", "No such file"), (Path("a\0"), "null byte")):
        with pytest.raises(ClusterError, match=words):
            read_cluster(path)


FIELDS = ["sites", "name", "nodes", "links", "to", "bandwidth", "gpus", "gpu", "count", "failures", "x"]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(["a", "1G"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=200)
@given(VALUES)
def test_any_document_gives_a_cluster_or_one_line_of_complaint(
    tmp_path_factory: pytest.TempPathFactory, document: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(document))
    complaints: list[str] = []
    made: ClusterSpec | None = None
    try:
        made = read_cluster(path)
    except ClusterError as error:
        complaints.append(str(error))
    assert made is not None or complaints[0].isprintable()
