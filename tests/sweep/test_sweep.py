"""Cells, rows and tables of a sweep: what each cell is, and that nothing but the design decides on the result."""

from __future__ import annotations

import csv
import random
import re
import time
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetsim as fs
from fleetsim.config import scenario_from_mapping
from fleetsim.config.load import with_changes
from fleetsim.errors import InputError
from fleetsim.estimates import estimate
from fleetsim.job.nameplate import mean_step_s
from fleetsim.job.trials import flat
from fleetsim.quantities import METRICS
from fleetsim.sim.metrics import metrics_of
from fleetsim.sim.run import simulate
from fleetsim.sweep import run as sweep_run
from fleetsim.sweep.cell import Design, Journal, design_of, digest_of, open_journal, run_cell, sources_digest
from fleetsim.sweep.grid import MOST_CELLS, Axis, Grid, grid_of
from fleetsim.sweep.run import sweep
from fleetsim.sweep.table import columns_of, write_table
from tests.sweep.jobs import JOB, SMALL, grid, job


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_combination_is_a_cell_once(sizes: list[int]) -> None:
    made = Grid(tuple(Axis(f"a{i}", tuple(range(n))) for i, n in enumerate(sizes)))
    found = [tuple(made.values(cell).values()) for cell in range(len(made))]
    assert found == sorted(found)
    assert len(set(found)) == len(made)
    assert list(made.values(0)) == [axis.path for axis in made.axes]


@pytest.mark.parametrize(
    ("axes", "told"),
    [
        ([], "nothing to sweep over"),
        ([("fleet.instances", [1, 1.0])], "comes twice"),
        ([("run.seed", [1, 2])], "--seed"),
        ([("run.replications", [1, 2])], "--replications"),
        ([("fleet.instances", [1]), ("fleet.instances", [2])], "swept twice"),
        ([("workload.output_tokens", [1]), ("workload.output_tokens.mean", [2])], "says the same thing"),
        ([("fleet.instances", list(range(1000))), ("trainer.gpus", list(range(1000)))], f"at most {MOST_CELLS:,}"),
    ],
)
def test_grids_that_make_no_sense(axes: list[tuple[str, list[object]]], told: str) -> None:
    with pytest.raises(InputError, match=told):
        grid_of([Axis(path, tuple(values)) for path, values in axes])


def test_a_cell_is_what_simulate_makes_of_its_values() -> None:
    result = sweep(job(), SMALL)
    assert [row.cell for row in result.rows] == list(range(6))
    assert result.complete
    for row in result.rows:
        scenario = with_changes(job(), SMALL.values(row.cell))
        runs = [flat(metrics_of(simulate(scenario, replication=r))) for r in range(2)]
        assert row.estimates() == {name: estimate([run[name] for run in runs]) for name in METRICS}
        assert row.binding == runs[0]["binding"] or row.binding == runs[1]["binding"]


def test_a_cell_of_another_trainer_or_model_has_what_simulate_works_out_for_it() -> None:
    """Nobody said the trainer's seconds, the GPUs of an engine, or the seconds of a sync: each cell has its own."""
    changes = {"fleet.instances": 4, "run.steps": 6, "run.replications": 1}
    asked = fs.load(None, changes)
    axes = [("trainer.gpus", [8, 16]), ("engine.model", ["Qwen/Qwen2.5-7B", "Qwen/Qwen3-14B"])]
    design = design_of(asked.scenario, grid(*axes), given=asked.given)
    for cell in range(len(design.grid)):
        values = design.grid.values(cell)
        found, simulated = design.scenario(cell), fs.load(None, {**changes, **values}).scenario
        assert (found.trainer, found.engine, found.sync) == (simulated.trainer, simulated.engine, simulated.sync), (
            values
        )
    said = fs.load(None, changes, trainer_step_s=20.0)
    design = design_of(said.scenario, grid(*axes), given=said.given)
    assert {design.scenario(cell).trainer.fixed_s for cell in range(4)} == {20.0}


def test_cells_share_their_draws() -> None:
    """A key that nothing reads changes nothing, to the last bit."""
    result = sweep(job(), grid(("targets.headroom", [0.5, 0.7, 0.9])))
    assert len({row.values for row in result.rows}) == 1


def test_speed_factors_go_with_their_instances_and_values_are_no_longer_assumed() -> None:
    scenario = scenario_from_mapping(
        {**JOB, "fleet": {"instances": 3, "speed_factors": [1.0, 0.5, 0.9]}, "assumed": ["fleet.instances"]}
    )
    design = design_of(scenario, grid(("fleet.instances", [2, 3, 4])))
    assert [design.scenario(cell).fleet.speed_factors for cell in range(3)] == [
        (1.0, 0.5), (1.0, 0.5, 0.9), (1.0, 0.5, 0.9),
    ]  # fmt: skip
    assert design.scenario(0).assumed == ()


def test_a_length_law_is_changed_as_set_changes_it() -> None:
    """Of a pair of keys the last word wins, and the cap stays."""
    axes = ("workload.output_tokens.median", [100, 150]), ("workload.output_tokens.p99", [600])
    design = design_of(job(), grid(*axes))
    laws = [design.scenario(cell).workload.output_tokens.model_dump(exclude_none=True) for cell in range(2)]
    assert laws == [{"kind": "lognormal", "median": median, "p99": 600, "max": 800} for median in (100, 150)]


def test_a_cell_that_cannot_be_simulated_is_a_row_with_its_reason() -> None:
    scenario = scenario_from_mapping({**JOB, "admission": {"law": "unbounded"}})
    cells = grid(("buffer.capacity_samples", [16, 64]), ("trainer.batch_samples", [32, 33]))
    rows = sweep(scenario, cells).rows
    assert [row.status for row in rows] == ["stuck", "invalid", "ok", "invalid"]
    assert "multiple of workload.group_size" in rows[1].reason
    assert rows[0].reason
    assert not rows[0].values


def test_a_grid_without_a_valid_cell_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_run, "_simulate", lambda *_: pytest.fail("work was begun"))
    with pytest.raises(InputError, match=r"multiple of workload\.group_size") as error:
        sweep(job(), grid(("trainer.batch_samples", [31, 33]), ("fleet.instances", [1, 2, 3])))
    assert len(error.value.problems) == 1


def test_the_order_of_completion_does_not_matter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def table(name: str) -> bytes:
        write_table(sweep(job(), SMALL), tmp_path / name)
        return (tmp_path / name).read_bytes()

    wanted = {ending: table(f"wanted{ending}") for ending in (".parquet", ".csv")}
    for seed in range(3):

        def shuffled(design: object, cells: list[int], *others: object, seed: int = seed) -> None:
            order = random.Random(seed).sample(list(cells), len(cells))
            for cell in order:
                others[-1](run_cell(design, cell))  # type: ignore[operator, arg-type]

        monkeypatch.setattr(sweep_run, "_simulate", shuffled)
        for ending, bytes_ in wanted.items():
            assert table(f"{seed}{ending}") == bytes_


def test_the_table_reads_back_as_it_was(tmp_path: Path) -> None:
    cells = grid(
        ("engine.gpu", ["H100", "A100"]), ("trainer.batch_samples", [32, 33]), ("admission.max_staleness", [0, 0.5])
    )
    result = sweep(job(), cells)
    write_table(result, tmp_path / "t.parquet")
    write_table(result, tmp_path / "t.csv")
    parquet, columns = pd.read_parquet(tmp_path / "t.parquet"), columns_of(result)
    assert list(parquet.columns) == list(columns)
    assert [str(parquet[axis.path].dtype) for axis in cells.axes] == ["str", "int64", "float64"]
    with (tmp_path / "t.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    for name, values in columns.items():
        assert [None if pd.isna(x) else x for x in parquet[name]] == values, name
        assert [line[name] for line in lines] == ["" if x is None else str(x) for x in values], name


def test_the_digest_is_of_what_decides_on_the_numbers(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("tokens\n100\n200\n")
    digests = [digest_of(design_of(job(**change), SMALL)) for change in ({}, {"seed": 1}, {"steps": 7})]
    digests.append(digest_of(design_of(job(), SMALL, 3)))
    digests.append(digest_of(design_of(job(), grid(("fleet.instances", [1, 2, 3])))))
    law = {"kind": "empirical", "file": str(lengths), "column": "tokens"}
    scenario = scenario_from_mapping({**JOB, "workload": {**JOB["workload"], "output_tokens": law}})
    digests.append(digest_of(design_of(scenario, SMALL)))
    lengths.write_text("tokens\n100\n300\n")
    digests.append(digest_of(design_of(scenario, SMALL)))
    assert len(set(digests)) == len(digests)
    assert digests[0] == digest_of(design_of(job(), SMALL))


def test_processes_give_the_same_rows_as_this_one() -> None:
    alone, beside = (sweep(job(), SMALL, workers=n) for n in (1, 2))
    assert alone.rows == beside.rows
    assert alone.pareto == beside.pareto


def test_progress_counts_up_to_all_cells() -> None:
    told: list[tuple[int, int, int]] = []
    sweep(job(), SMALL, workers=1, progress=lambda done, of, rows: told.append((done, of, len(rows))))
    assert told == [(0, 6, 0), *((n, 6, 1) for n in range(1, 7))]


def test_cells_of_another_version_are_refused() -> None:
    from fleetsim.errors import OutsideError
    from fleetsim.sweep.cluster import _check_sources

    _check_sources(sources_digest())
    with pytest.raises(OutsideError, match="another version"):
        _check_sources("another")


@pytest.mark.slow
def test_a_cell_costs_the_same_among_many_as_among_few(tmp_path: Path) -> None:
    """Journal, front and table included; the best of three, for the machine does other things too."""

    def seconds_per_cell(cells: int) -> float:
        prices = grid(("cost.instance_price_usd_per_gpu_h", [1 + k / 1000 for k in range(cells)]))
        output = tmp_path / "t.parquet"
        start = time.process_time()
        journal: list[Journal] = []

        def opened(design: Design) -> Journal:
            journal.append(open_journal(output, digest_of(design), cells))
            return journal[0]

        write_table(sweep(job(steps=2, replications=1), prices, workers=1, journal=opened), output)
        journal[0].discard()
        return (time.process_time() - start) / cells

    seconds_per_cell(10)
    few = min(seconds_per_cell(10) for _ in range(3))
    assert any(seconds_per_cell(500) < 3 * few for _ in range(3))


# Where the law of published runs holds, p = 1 / (1 + 8 / 90) of a step on 8 GPUs is divided by more (verl's 7B on H20).
AMDAHL = 1 - 0.5 / (1 + 8 / 90)


@pytest.mark.parametrize(
    ("of_engine", "key", "values", "factor"),
    [
        ({"engine.kind": "constant", "engine.instance_tok_s": 2000.0}, "trainer.gpus", [8, 16], AMDAHL),
        ({}, "trainer.gpus", [8, 16], None),
        ({}, "trainer.batch_samples", [256, 384], None),
    ],
)
def test_trainer_seconds_that_are_stated_and_should_move_are_named(
    of_engine: dict[str, object], key: str, values: list[int], factor: float | None
) -> None:
    """They are held against those that the same jobs have where nobody states them."""
    job = {**of_engine, "trainer.gpus": 8, "run.steps": 3}
    if factor is None:
        seconds = [mean_step_s(fs.load(None, {**job, key: value}).scenario) for value in values]
        factor = seconds[1] / seconds[0]
    stated = fs.load(None, {**job, "trainer.fixed_s": 30.0}, replications=1)
    (note,) = [n for n in fs.sweep(stated, {key: values}).warnings if n.startswith(key)]
    assert "30.0 s in every cell; by the" in note
    said = float(re.search(rf"and ([\d.]+) s at {values[1]}", note)[1])  # type: ignore[index]
    assert said == pytest.approx(30.0 * factor, abs=0.06)


def test_trainer_seconds_that_follow_from_the_job_are_not_named() -> None:
    free = fs.load(None, {"trainer.gpus": 8, "run.steps": 3}, replications=1)
    assert not [n for n in fs.sweep(free, {"trainer.gpus": [8, 16]}).warnings if "stated" in n]
