"""docs/reference says what the code says."""

import json
import re
from pathlib import Path

import pytest

from support.yaml_text import load_yaml
from tranche.policies import POLICIES, get_policy, live_policies
from tranche_codegen.files import differences
from tranche_codegen.reference.__main__ import generated_files, main
from tranche_codegen.reference.commands import commands_page
from tranche_codegen.reference.crds import definition_page
from tranche_codegen.reference.policies import policies_page
from tranche_codegen.reference.values import comments, values_page

ROOT = Path(__file__).resolve().parents[3]


def test_the_committed_pages_are_what_the_code_generates() -> None:
    assert differences(generated_files(ROOT), ROOT) == [], "make generate"


@pytest.mark.slow
def test_a_page_that_was_edited_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path)]) == 0
    edited = tmp_path / "docs/reference/site.md"
    edited.write_text(edited.read_text().replace("One-way", "Two-way"))
    assert main(["--root", str(tmp_path), "--check"]) == 1
    assert "site.md: 1 lines to add, 1 to remove" in capsys.readouterr().out


def test_a_field_is_listed_with_type_default_and_meaning() -> None:
    page = definition_page(ROOT / "manifests/crds/sites.yaml")
    assert (
        '| `tier` | `Edge` or `Cloud` | `"Edge"` '
        "| Edge: a few nodes near the data. Cloud: many nodes, far from the data. |" in page
    )
    assert (
        "| `nodeSelector` | map to string | required "
        "| Labels that select the site's nodes. A node belongs to one site. |" in page
    )


def test_every_field_and_column_has_a_meaning() -> None:
    for name in ("sites", "trainingjobs"):
        page = definition_page(ROOT / f"manifests/crds/{name}.yaml")
        for part in ("spec", "status", "Columns of kubectl get"):
            (section,) = [text for text in page.split("\n## ") if text.startswith(f"{part}\n")]
            table = section.partition("\n### ")[0]
            rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
            assert len(rows) > 5
            assert [row for row in rows if row.endswith("|  |")] == []


def test_large_bounds_are_written_with_all_digits() -> None:
    page = definition_page(ROOT / "manifests/crds/trainingjobs.yaml")
    assert "| `runPolicy.ttlSecondsAfterFinished` | integer, ≥ 0 and ≤ 2147483647 |" in page
    assert "| `weight` | number, > 0 and ≤ 1000000 | `1` |" in page


def test_a_value_without_a_comment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "values.schema.json").write_text('{"properties": {"a": {"type": "integer"}}}')
    (tmp_path / "values.yaml").write_text("# -- What it is.\na: 1\n")
    assert "| `a` | integer | `1` | What it is. |" in values_page(tmp_path)
    (tmp_path / "values.yaml").write_text("a: 1\n")
    with pytest.raises(KeyError, match="a"):
        values_page(tmp_path)


def pattern_of_policies() -> re.Pattern[str]:
    schema = json.loads((ROOT / "helm/tranche/values.schema.json").read_text(encoding="utf-8"))
    return re.compile(schema["properties"]["policy"]["pattern"])


def test_schema_knows_the_policies_that_run_live() -> None:
    pattern = pattern_of_policies()
    assert {name for name in POLICIES if pattern.search(name)} == set(live_policies())
    assert not pattern.search("chunky")


@pytest.mark.parametrize("text", ["chunk:fair=1:aging=0", "selector:members=srsf+las:jobs=50", "chunk:aging=inf"])
def test_schema_takes_the_options_of_a_policy(text: str) -> None:
    get_policy(text)
    assert pattern_of_policies().search(text)


@pytest.mark.parametrize("text", ["chunk:agin=3", "chunk:aging=nan", "chunk:aging=-3", "chunk:fair=yes", "las:fair=1"])
def test_schema_refuses_options_that_a_policy_does_not_have(text: str) -> None:
    with pytest.raises(ValueError, match=text.partition(":")[0]):
        get_policy(text)
    assert not pattern_of_policies().search(text)


def test_comments_are_of_the_value_below_them() -> None:
    text = "a:\n  # -- First.\n  b: 1\n  c:\n    # -- Second.\n    d: 1\n# -- Third.\ne: 2\n"
    assert dict(comments(text)) == {"a.b": "First.", "a.c.d": "Second.", "e": "Third."}
    assert load_yaml(text)


def test_whole_numbers_of_commands_have_no_decimals() -> None:
    assert not re.findall(r"(?<![\d.])\d+\.0(?![\d.])", commands_page())


def test_every_command_and_every_policy_is_listed() -> None:
    commands, policies = commands_page(), policies_page()
    for path in ("tranche simulate", "tranche scheduler", "tranche-operator", "kubectl tranche whatif"):
        assert f"## {path}\n" in commands
    assert "--server-idle-seconds" in commands
    for name, policy in POLICIES.items():
        assert f"## {name}\n" in policies
        assert policy.source in policies
