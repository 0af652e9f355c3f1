"""An installed tranche has the page's files."""

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[3]
STATIC = ROOT / "scheduler/tranche/web/static"


def test_the_wheel_holds_every_file_of_the_page(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        for file in STATIC.iterdir():
            assert archive.read(f"tranche/web/static/{file.name}") == file.read_bytes()


@pytest.mark.parametrize("file", sorted(STATIC.iterdir()), ids=lambda file: file.name)
def test_the_page_refers_to_nothing_elsewhere(file: Path) -> None:
    text = file.read_text().replace("http://www.w3.org/2000/svg", "")
    for way in ("http:", "https:", "url(", "@import", 'src="//', 'href="//', "eval("):
        assert way not in text
    assert "innerHTML" not in text
    assert " style=" not in text
    assert "<script>" not in text
