"""The span of time of the page's timelines, computed by the page's own script."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tranche.web import static_files

playwright = pytest.importorskip("playwright", reason="the development dependencies are older than this test")
SCRIPT = Path(static_files.__file__).parent / "static/scale.js"
NODE = Path(playwright.__file__).parent / "driver/node"
NOW = 1_000_000.0


def seconds_ahead(*bars: dict[str, Any]) -> float:
    program = (
        f"import {{ extent }} from {json.dumps(str(SCRIPT))}; console.log(extent({json.dumps(bars)}, {NOW}).to - {NOW})"
    )
    command = [str(NODE), "--input-type=module", "-e", program]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return float(answer.stdout) / 1000


def bar(start: float, end: float, *, assumed: bool = False) -> dict[str, Any]:
    begin, stop = (f"1970-01-01T{int(t // 3600):02}:{int(t // 60 % 60):02}:{int(t % 60):02}Z" for t in (start, end))
    return {"start": begin, "end": stop, "assumed": assumed}


@pytest.mark.parametrize(
    ("bars", "ahead"),
    [
        ([bar(990, 1055)], 60),
        ([bar(990, 1055), bar(990, 4600, assumed=True)], 60),
        ([bar(990, 1055), bar(990, 4600, assumed=True), bar(4600, 9000)], 60),
        ([bar(990, 4600, assumed=True)], 3600),
        ([bar(990, 1055), bar(1055, 4600)], 3600),
    ],
    ids=["one", "beside an assumed end", "behind an assumed end", "assumed alone", "known ends"],
)
def test_assumed_end_sets_no_scale_beside_known_ends(bars: list[dict[str, Any]], ahead: float) -> None:
    assert seconds_ahead(*bars) == ahead
