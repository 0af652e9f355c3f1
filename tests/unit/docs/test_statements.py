"""Ports, versions and sizes on the pages are those of chart and code."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from support.doc_pages import ROOT, blocks, pages, section
from support.yaml_text import load_all_yaml, load_yaml
from tranche.auth.user_access import REVIEWS_BURST, REVIEWS_PER_SECOND, RIGHTS
from tranche.kube.api.names import REPORT_AUDIENCE
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.policies import POLICIES, live_policies
from tranche_operator.settings import Settings

DEPLOYMENTS = "".join((ROOT / f"helm/tranche/templates/{n}.yaml").read_text() for n in ("scheduler", "operator"))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_ports_on_pages_are_ports_of_the_chart() -> None:
    ports = set(re.findall(r"containerPort: (\d+)", DEPLOYMENTS)) | set(re.findall(r"--\S*port=(\d+)", DEPLOYMENTS))
    assert {"10262", "10263", "10264", "10265", "8081"} <= ports
    for page in pages():
        named = set(re.findall(r"\b(?:1026\d|808\d)\b", page.read_text(encoding="utf-8")))
        assert named <= ports, page


def test_versions_on_pages_are_those_that_are_tested() -> None:
    files = [*(ROOT / "testcluster").rglob("*.py"), *(ROOT / "testcluster").rglob("go.mod")]
    builds = "".join(p.read_text(encoding="utf-8") for p in files)
    for page in ("README.md", "docs/reference/compatibility.md"):
        versions = re.findall(r"\b1\.3\d\.\d+\b", text(page))
        assert versions, page
        assert all(version in builds for version in versions), page


def test_pythons_on_pages_are_those_of_the_package() -> None:
    project = tomllib.loads(text("pyproject.toml"))["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert "Python 3.11–3.13" in text("README.md")


def test_every_job_and_site_on_a_page_can_be_read() -> None:
    kinds: dict[str, type[TrainingJob | SiteObject]] = {"TrainingJob": TrainingJob, "Site": SiteObject}
    seen = []
    for page in pages():
        for block in blocks(page):
            if block.language != "yaml":
                continue
            for document in load_all_yaml(block.text):
                if isinstance(document, dict) and document.get("kind") in kinds:
                    kinds[document["kind"]].model_validate(document)
                    seen.append(document["kind"])
    assert set(seen) == set(kinds)


def test_every_page_is_listed_for_who_reads_it_elsewhere() -> None:
    listed = text("docs/index.md")
    for folder in ("tutorial", "how-to", "reference", "explanation"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert f"]({folder}/{page.name})" in listed, page.name


def test_pages_lie_in_the_folder_of_their_kind() -> None:
    assert [page.name for page in (ROOT / "docs").glob("*.md")] == ["index.md"]


def test_values_on_the_page_are_those_of_the_chart() -> None:
    values = load_yaml(text("helm/tranche/values.yaml"))
    page = text("docs/how-to/installing.md")
    table = page.partition("| value | default | meaning |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines()]
    assert len(rows) > 15
    for names, default in rows:
        paths = re.findall(r"`([^`]+)`", names)
        for path in (f"{paths[0].rpartition('.')[0]}{one}" if one.startswith(".") else one for one in paths):
            value = values
            for name in path.split("."):
                assert name in value, f"the chart has no {path}"
                value = value[name]
            if re.fullmatch(r"\S+", default):
                assert load_yaml(default.strip("`")) == value, path


def test_lifetimes_of_tokens_are_those_of_code_and_chart() -> None:
    page = text("docs/explanation/multi-tenancy.md")
    assert "(audience `tranche.dev`, one hour, bound to the pod)" in page
    assert (REPORT_AUDIENCE, Settings().token_seconds) == ("tranche.dev", 3600)
    assert "(audience `planner.tranche.dev`, ten minutes, mounted into the container `api` only)" in page
    assert "audience: planner.tranche.dev, expirationSeconds: 600" in DEPLOYMENTS


def test_reviews_for_visitors_are_as_often_as_stated() -> None:
    page = " ".join(text("docs/explanation/multi-tenancy.md").split())
    assert RIGHTS.trusted_seconds == RIGHTS.refused_seconds
    assert f"for each namespace with jobs, and again after {RIGHTS.refused_seconds:g} s." in page
    assert f"at most {REVIEWS_PER_SECOND:g} each second for one user, after {REVIEWS_BURST} at once" in page


def test_rights_of_the_page_are_among_the_trust_boundaries() -> None:
    table = section(ROOT / "docs/explanation/multi-tenancy.md", "trust-boundaries")
    row = next(line for line in table.splitlines() if line.startswith("| a token for the page"))
    values = load_yaml(text("helm/tranche/values.yaml"))["page"]
    assert values
    for name, value in values.items():
        assert value == {"enabled": True}
        assert f"unless `page.{name}.enabled` is false" in row


def test_all_policies_for_the_simulator_only_are_named() -> None:
    found = re.search(r"These policies run in the simulator only: ([^.]+)\.", text("docs/reference/limits.md"))
    assert found is not None
    assert set(re.findall(r"`([^`]+)`", found[1])) == POLICIES.keys() - set(live_policies())


def test_size_of_the_definition_is_that_of_the_file() -> None:
    page = text("docs/explanation/cluster-integration.md")
    found = re.search(r"at most 262,144 bytes\. The definition of TrainingJob fits \(some\s+([\d,]+) bytes\)", page)
    assert found is not None
    definition = load_yaml(text("manifests/crds/trainingjobs.yaml"))
    size = len(json.dumps(definition, separators=(",", ":"), ensure_ascii=False).encode())
    assert abs(size - int(found[1].replace(",", ""))) < 2000
    assert size < 262_144


MEASURED = re.findall(
    r"(?m)^\| \[[^]]+\]\((docs/reference/results/[\w-]+\.md)#([\w-]+)\)[^|]* \| ([^|]+) \|", text("README.md")
)


@pytest.mark.parametrize(("page", "anchor", "result"), MEASURED, ids=[anchor for _, anchor, _ in MEASURED])
def test_figures_of_the_readme_are_in_the_linked_results(page: str, anchor: str, result: str) -> None:
    measured = set(re.findall(r"\d+(?:\.\d+)?", section(ROOT / page, anchor)))
    quoted = set(re.findall(r"\d+(?:\.\d+)?", result))
    assert quoted
    assert quoted - measured == set()


def test_the_readme_quotes_several_results() -> None:
    assert len(MEASURED) >= 6


ANSWERS = re.findall(
    r"(?m)^\| [^|]+ \| ([^|]+) \| \[[^]]+\]\(((?:results|systems)/[\w-]+\.md)#([\w-]+)\)",
    text("docs/reference/results.md").partition("## How to read")[0],
)


@pytest.mark.parametrize(("answer", "page", "anchor"), ANSWERS, ids=[f"{n}-{one[2]}" for n, one in enumerate(ANSWERS)])
def test_figures_of_an_answer_are_in_its_section(answer: str, page: str, anchor: str) -> None:
    measured = set(re.findall(r"\d+(?:\.\d+)?", section(ROOT / "docs/reference" / page, anchor)))
    assert set(re.findall(r"\d+(?:\.\d+)?", answer)) - measured == set()


def test_results_begin_with_answers() -> None:
    assert len(ANSWERS) > 20


def decisions() -> list[Path]:
    return sorted((ROOT / "docs/decisions").glob("0*.md"))


def test_every_decision_is_listed() -> None:
    listed = text("docs/decisions/README.md")
    for page in decisions():
        assert f"({page.name})" in listed, page.name


def test_pages_do_not_read_the_log_of_an_arbitrary_replica() -> None:
    for page in pages():
        assert not re.search(r"kubectl \S* ?\S* ?logs deploy", page.read_text(encoding="utf-8")), page


def test_first_jobs_of_chart_and_pages_have_different_names() -> None:
    files = ("helm/tranche/templates/NOTES.txt", "manifests/kind/job.yaml", "docs/samples/first.yaml")
    names = [re.search(r"kind: TrainingJob\n *metadata:[^a-z]*name: ([a-z-]+)", text(file)) for file in files]
    assert len({name[1] for name in names if name is not None}) == len(files)


def test_variables_of_pods_are_on_the_page_of_training_code() -> None:
    source = text("operator/tranche_operator/manifests/environment.py") + text(
        "operator/tranche_operator/manifests/pod.py"
    )
    variables = set(re.findall(r'"(TRANCHE_[A-Z_]+|TF_CONFIG|MASTER_[A-Z]+|WORLD_SIZE|RANK)"', source))
    assert len(variables) > 15
    page = section(ROOT / "docs/how-to/training-code.md", "without-the-package")
    assert sorted(variable for variable in variables if variable not in page) == []


def test_page_says_how_many_pods_a_running_job_keeps() -> None:
    kept = Settings()
    words = f"its last {kept.kept_failed} failed pods and its last two succeeded ones"
    assert kept.kept_succeeded == 2
    for page in ("docs/how-to/kubectl-plugin.md", "docs/how-to/accounting.md"):
        assert words in text(page)
