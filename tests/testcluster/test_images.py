"""Images built without Docker, as far as they need neither root nor buildah; tests/e2e has the rest."""

from dataclasses import replace
from pathlib import Path

import pytest

from support import product_images
from tranche_testcluster.errors import BuildError
from tranche_testcluster.images import Recipe, build


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    context = tmp_path / "context"
    (context / "kept").mkdir(parents=True)
    (context / ".dockerignore").write_text("# comment\n*\n!kept\n")
    (context / "kept" / "file").write_text("one")
    (context / "Dockerfile").write_text("FROM scratch\n")
    return Recipe("localhost/one:1", context / "Dockerfile", context)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANCHE_CACHE", str(tmp_path / "cache"))


def test_digest_changes_with_every_file_that_is_built_from(recipe: Recipe) -> None:
    before = recipe.digest
    (recipe.context / "kept" / "file").write_text("two")
    after = recipe.digest
    (recipe.context / "kept" / "more").write_text("")
    assert len({before, after, recipe.digest}) == 3
    recipe.dockerfile.write_text("FROM scratch AS base\n")
    assert replace(recipe, target="base").digest != recipe.digest


def test_digest_ignores_files_outside_the_context(recipe: Recipe) -> None:
    before = recipe.digest
    (recipe.context / "other").write_text("x")
    (recipe.context / "kept" / "__pycache__").mkdir()
    (recipe.context / "kept" / "__pycache__" / "module.pyc").write_text("x")
    assert recipe.digest == before


def test_build_without_buildah_names_the_package(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BuildError, match="apt-get install buildah"):
        build(recipe)


def test_names_of_the_images_are_those_of_the_chart() -> None:
    assert product_images.image_name("scheduler") == f"docker.io/library/tranche-scheduler:{product_images.VERSION}"
