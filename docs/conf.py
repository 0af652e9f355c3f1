"""How Sphinx builds these pages: `make docs`."""

import re
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]

project = "tranche"
author = "the authors of tranche"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser"]
exclude_patterns = ["samples"]
html_theme = "furo"
html_title = f"tranche {release}"
html_copy_source = False
html_theme_options = {"source_repository": "", "top_of_page_buttons": []}
myst_heading_anchors = 3
nitpicky = True
DECISIONS = "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"


def list_decisions(app: Sphinx, page: str, source: list[str]) -> None:
    """The list of decisions leads to all of them, without a directive in what other readers show."""
    if page == "decisions/README":
        source[0] += DECISIONS


def name_files(app: Sphinx, tree: nodes.document) -> None:
    """Links to files of the repository beside docs become their paths: a site of pages does not hold them."""
    here = Path(tree["source"]).parent
    for node in list(tree.findall(lambda one: one.tagname in ("pending_xref", "download_reference", "reference"))):
        target = str(node.get("reftarget") or node.get("refuri") or "")  # type: ignore[attr-defined]
        if re.match(r"[a-z]+:|#", target) or not target:
            continue
        file = (here / target.partition("#")[0]).resolve()
        if file.exists() and not file.is_relative_to(ROOT / "docs"):
            path = str(file.relative_to(ROOT))
            said = node.astext()
            text = said if said in path else f"{said} ({path})"
            node.parent.replace(node, nodes.literal(text, path if said in path else text))  # type: ignore[union-attr]


def setup(app: Sphinx) -> dict[str, Any]:
    """Mermaid's pictures are drawn by other readers; here they stay text, since nothing is loaded from elsewhere."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", list_decisions)
    app.connect("doctree-read", name_files)
    return {"parallel_read_safe": True}
