"""docs/notebook.ipynb runs from end to end; its cells assert what its text says.

It takes half a minute, and the site runs it, too: with FLEETSIM_SITE what the site's build has executed is looked at.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> nbformat.NotebookNode:
    if place := os.environ.get("FLEETSIM_SITE"):
        return nbformat.read(Path(place).parent / "jupyter_execute" / NOTEBOOK.name, as_version=4)
    if os.environ.get("NOTEBOOK_WITH_SITE"):
        pytest.skip("THE NOTEBOOK IS LOOKED AT WITH THE SITE: NOTEBOOK_WITH_SITE says that this run builds one")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    elsewhere = str(tmp_path_factory.mktemp("notebook"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
        return NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": elsewhere}}
        ).execute()


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def test_every_cell_runs_without_a_complaint(executed: nbformat.NotebookNode) -> None:
    assert all(c.execution_count for c in executed.cells if c.cell_type == "code")
    assert [o for o in outputs(executed) if o.output_type == "error" or o.get("name") == "stderr"] == []


def test_results_and_tables_are_shown_as_html_and_the_page_is_whole(executed: nbformat.NotebookNode) -> None:
    shown = [o.data["text/html"] for o in outputs(executed) if "text/html" in o.get("data", {})]
    assert any("a step takes" in text for text in shown)
    assert sum('class="dataframe"' in text for text in shown) >= 6
    assert any("srcdoc=" in text and "class=&quot;chart&quot;" in text for text in shown)
    asks = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//')
    assert [found for text in shown for found in asks.findall(text)] == []


def test_nothing_is_shown_twice(executed: nbformat.NotebookNode) -> None:
    """Rich shows by itself what is printed in a notebook, unless it is told not to."""
    for cell in executed.cells:
        if cell.cell_type == "code":
            assert [o.output_type for o in cell.outputs].count("display_data") == 0, cell.source
            assert len(cell.outputs) <= 2, cell.source  # what it prints, and what it ends with


def test_the_file_is_kept_without_outputs() -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(stored)
    assert outputs(stored) == []
    assert all(c.execution_count is None for c in stored.cells if c.cell_type == "code")
