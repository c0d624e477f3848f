"""The page of a sweep: which cells it draws and how they are told apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fleetsim as fs
from fleetsim import units
from fleetsim.cli.main import app
from fleetsim.records import replace
from fleetsim.sweep.cell import text_of
from fleetsim.sweep.facts import document, front_chart
from fleetsim.sweep.run import SweepRows
from fleetsim.tell.document import Table
from fleetsim.tell.page import document_page
from tests.report.test_profile_html import series_of

SCENARIO = "async-one-step"


@pytest.fixture(scope="module")
def swept() -> SweepRows:
    job = fs.load(SCENARIO, {"admission.law": "unbounded"}, steps=6, replications=2)
    return fs.sweep(job, {"fleet.instances": [2, 4, 6], "buffer.capacity_samples": [16, 512]}, workers=1).swept


def test_every_cell_that_ran_is_drawn_once_at_its_means(swept: SweepRows) -> None:
    chart = front_chart(swept)
    assert chart is not None
    best, *groups = series_of(chart)
    drawn = sorted((x, y) for group in groups for x, y in zip(group.x, group.y, strict=True))
    ran = [row.estimates() for row in swept.rows if row.status == "ok"]
    assert drawn == sorted((e["step_s"].mean, e["cost_per_step"].mean) for e in ran)
    assert len({group.look.symbol for group in (best, *groups)}) == len(groups) + 1  # not by colour alone
    first = swept.row(swept.pareto.best[0].cell).estimates()
    assert (best.x, best.y) == ([first["step_s"].mean], [first["cost_per_step"].mean])


def test_larger_symbols_have_more_of_the_third_objective(swept: SweepRows) -> None:
    chart = front_chart(swept)
    assert chart is not None
    sizes = {
        (x, y): size for group in series_of(chart)[1:] for x, y, size in zip(group.x, group.y, group.sizes, strict=True)
    }
    ran = [row.estimates() for row in swept.rows if row.status == "ok"]
    ran.sort(key=lambda e: e["staleness_steps.mean"].mean)
    areas = [sizes[e["step_s"].mean, e["cost_per_step"].mean] for e in ran]
    assert areas == sorted(areas)
    assert areas[0] < areas[-1]


def test_the_tables_of_the_page_hold_every_cell_and_its_numbers(swept: SweepRows) -> None:
    """The same cells as the terminal's table; by hand from the rows of the sweep."""
    sheets = [b for _, blocks in document(swept, [SCENARIO]).shown("page") for b in blocks if isinstance(b, Table)]
    assert len(sheets) == 3  # the cells, and what each of the two keys does
    ran = [row for row in swept.rows if row.status == "ok"]
    means = {row.cell: row.estimates()["cost_per_step"].mean for row in ran}
    cells, by_count, by_capacity = sheets
    cheapest = sorted(means, key=means.__getitem__)
    values_of = [tuple(map(text_of, swept.design.grid.values(cell).values())) for cell in cheapest]
    assert [row[1:3] for row in cells.rows] == values_of
    assert [row[3] for row in cells.rows] == [units.number(means[cell]) for cell in cheapest]
    assert cells.headings[1:4] == ("instances", "capacity_samples", "$/step")
    for sheet, path in ((by_count, "fleet.instances"), (by_capacity, "buffer.capacity_samples")):
        values = next(axis.values for axis in swept.design.grid.axes if axis.path == path)
        assert [row[0] for row in sheet.rows] == [text_of(v) for v in values]
        assert sheet.headings[0] == path
        assert all(row[1] not in ("", "-") for row in sheet.rows if row[-1] != "0")


def test_the_page_itself_shows_the_cells_of_its_tables(swept: SweepRows) -> None:
    page = document_page(document(swept, [SCENARIO]))
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for row in re.findall(r"<tr>.*?</tr>", page, re.DOTALL)]
    best = swept.row(swept.pareto.best[0].cell)
    values = [*map(text_of, swept.design.grid.values(best.cell).values())]
    assert [*values, units.number(best.estimates()["cost_per_step"].mean)] in [row[1:4] for row in rows]


def test_one_objective_has_no_front_and_no_cell_has_no_chart(swept: SweepRows) -> None:
    alone = replace(swept, pareto=replace(swept.pareto, objectives=swept.pareto.objectives[:1]))
    assert front_chart(alone) is None
    nothing = replace(swept, rows=swept.rows[:1], pareto=replace(swept.pareto, marks={}, best=()))
    story = document(nothing, [SCENARIO])
    assert "No cell is finished." in story.facts.explained
    assert [title for title, _ in story.shown("page")] == ["Cells that could not be simulated"]


def test_the_command_writes_the_page_of_the_interface(tmp_path: Path) -> None:
    page = tmp_path / "sweep.html"
    flags = ["--steps", "4", "--replications", "2", "--workers", "1"]
    words = ["sweep", SCENARIO, "--grid", "fleet.instances=2,4", *flags, "--html", str(page)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    assert f"wrote {page}" in done.stderr
    found = fs.sweep(SCENARIO, {"fleet.instances": [2, 4]}, steps=4, replications=2, workers=1)
    ours = found.to_html(tmp_path / "ours.html").read_text()
    assert ours == page.read_text().replace(f"simulate {SCENARIO}", "simulate SCENARIO").replace(
        f"--scenario {SCENARIO}", "--scenario SCENARIO"
    )
    again = CliRunner().invoke(app, [*words[:-4], "--steps", "0", "--html", str(page)])
    assert again.exit_code == 2
    assert "exists already" in again.stderr
