"""What GPUs cost: by type from a dated table, by a table of one's own, by a number; and what an answer says of it."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path

import pytest

import fleetsim as fs
from fleetsim.config import scenario_from_mapping
from fleetsim.config.data_files import data_path
from fleetsim.config.sections import CostConfig
from fleetsim.engine.gpus import GPUS
from fleetsim.engine.prices import listed_price, prices_of
from fleetsim.errors import InputError
from fleetsim.job.derived_values import PRICE, price_notes
from fleetsim.search.objective import usd_per_h

SMALL = {"steps": 8, "replications": 2}
MISSED = "$3 per GPU-hour is taken: costs do not compare"


def test_every_row_of_the_table_is_a_gpu_with_a_price_a_date_and_a_source() -> None:
    with data_path("calibration", "gpu_prices.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({(r["gpu"], r["market"]) for r in rows}) == len(rows)
    for row in rows:
        assert row["gpu"] in GPUS, "the data sheet's name, or the row is never found"
        assert row["market"] in ("neocloud", "hyperscaler")
        assert 0.2 < float(row["usd_per_gpu_h"]) < 20
        assert datetime.date(2026, 1, 1) < datetime.date.fromisoformat(row["date"]) < datetime.date(2026, 11, 22)
        assert row["source"]


def test_a_type_costs_what_its_market_lists_and_a_given_price_goes_before() -> None:
    def of(gpu: str, **cost: object) -> tuple[float, float]:
        found = prices_of(scenario_from_mapping({"engine": {"gpu": gpu}, "cost": cost}))
        return found.rollout, found.trainer

    assert of("h100") == (3.64, 3.64)
    assert of("B200")[0] > of("H200")[0] > of("H100")[0] > of("A100-80GB")[0] > of("L4")[0]
    assert of("H100", market="hyperscaler") == (6.88, 6.88)
    assert of("H100", instance_price_usd_per_gpu_h=1.5) == (1.5, 3.64)
    assert of("H100", trainer_price_usd_per_gpu_h=0.0) == (3.64, 0.0)
    assert of("H800") == (3.0, 3.0)
    assert not listed_price("H800").known


def test_a_trainer_on_gpus_of_its_own_costs_what_their_type_does() -> None:
    """And a hour of both pools is each one's GPUs times its price."""
    job = fs.load(
        {}, {"trainer.recipe.gpu": "B200"}, batch=16, len=200, gpu="A100", trainer_gpus=8, instances=2, **SMALL
    )
    prices = prices_of(job.scenario)
    assert (prices.rollout, prices.trainer) == tuple(listed_price(gpu).usd_per_gpu_h for gpu in ("A100", "B200"))
    mean, gpus = job.simulate().mean, 2 * job["engine.tp"]
    paid = gpus * prices.rollout + 8 * prices.trainer
    assert 3600 * mean["cost_per_step"] / mean["step_s"] == pytest.approx(paid)
    unlisted = job.with_({"trainer.recipe.gpu": "H800"})
    assert any("no neocloud price of H800-SXM is on record" in note for note in unlisted.notes)


@pytest.mark.parametrize("door", ["size", "simulate"])
def test_a_type_without_a_list_price_is_told_with_what_to_give(door: str) -> None:
    job = fs.load(batch=64, len=500, gpu="H20", **SMALL)
    found = {"size": job.size, "simulate": job.simulate}[door]()
    told = "no neocloud price of H20-SXM is on record: $3 per GPU-hour stands in"
    assert sum(told in warning for warning in found.warnings) == 1
    assert not any("on record" in note for note in fs.load(gpu="H20", instance_price=1.0, trainer_price=1.0).notes)
    assert not any("on record" in note for note in fs.load(gpu="MI355X").notes)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_table_of_ones_own_goes_before_and_may_be_edited(tmp_path: Path) -> None:
    table = tmp_path / "prices.csv"
    table.write_text("gpu,usd_per_gpu_h,seen\nH100,2.10,today\nmine,0.5,today\n", encoding="utf-8")
    job = fs.load(batch=64, gpu="H100").with_({"cost.prices": str(table)})
    assert prices_of(job.scenario).rollout == 2.10
    assert listed_price("mine", own=str(table)).usd_per_gpu_h == 0.5
    assert listed_price("H200", own=str(table)) == listed_price("H200")
    assert "$2.10 per rollout GPU-hour (prices.csv)" in " ".join(job.size(replications=1).explained.split())


@pytest.mark.parametrize(
    ("text", "rule"),
    [("a,b\n1,2\n", "columns gpu and usd_per_gpu_h"), ("gpu,usd_per_gpu_h\nH100,dear\n", "line 2"),
     ("gpu,usd_per_gpu_h\nH100,nan\n", "line 2"), ("gpu,usd_per_gpu_h\nH100\n", "line 2")],
)  # fmt: skip
def test_another_file_is_refused_with_what_is_wrong(tmp_path: Path, text: str, rule: str) -> None:
    table = tmp_path / "prices.csv"
    table.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rule):
        fs.load(batch=64).with_({"cost.prices": str(table)})
    with pytest.raises(InputError, match=r"cost\.prices"):
        fs.load(batch=64).with_({"cost.prices": str(tmp_path / "none.csv")})


@pytest.mark.parametrize(
    ("fleets", "told"),
    [(["H100", "B200"], False), (["H100", "H800"], True), (["H800", "MI355X"], True), (["H800"], False), ([], False),
     (["mine", "H100"], True)],
)  # fmt: skip
def test_prices_are_missed_where_types_differ(fleets: list[str], told: bool) -> None:
    assert bool(list(price_notes(((gpu, CostConfig()) for gpu in fleets), "remedy"))) is told
    given = CostConfig(instance_price_usd_per_gpu_h=5.0)
    assert not list(price_notes(((gpu, given) for gpu in fleets), "remedy"))


def test_a_sweep_over_gpus_tells_of_prices_and_of_each_speed(tmp_path: Path) -> None:
    found = fs.sweep("async-one-step", {"engine.gpu": ["H100", "B200", "H200"]}, **SMALL)
    assert not any(MISSED in text for text in found.warnings)
    unknown = fs.sweep("async-one-step", {"engine.gpu": ["H100", "H800"]}, **SMALL)
    assert sum(MISSED in text for text in unknown.warnings) == 1
    document = found.to_dict()
    assert [p["gpu"] for p in document["profiles"]] == ["H100", "B200", "H200"]
    errors = [p["error_p90"] for p in document["profiles"]]
    assert len(set(errors)) == 3, "each GPU has an error of its own"
    page, text = found.to_html(tmp_path / "page.html").read_text(encoding="utf-8"), found.explained
    for words in ("on B200-SXM kept out of the fit", "on GPUs that were kept out of the fit, as none of this one"):
        assert words in " ".join(page.split())
        assert words in " ".join(text.split())


@pytest.mark.parametrize(
    "grid",
    [{"engine.gpu": ["H100", "B200"], PRICE: [3.0]}, {"engine.gpu": ["H100", "H100-SXM"]}, {"fleet.instances": [2, 3]}],
)
def test_a_sweep_with_prices_or_one_type_warns_of_nothing(grid: dict[str, list[object]]) -> None:
    assert not any(MISSED in text for text in fs.sweep("async-one-step", grid, **SMALL).warnings)


def test_a_comparison_of_gpus_tells_both() -> None:
    job = fs.load("async-one-step", steps=8)
    found = fs.compare(job, job.with_({"engine.gpu": "H800"}), replications=2).comparison
    assert sum(MISSED in note for note in found.notes) == 1
    assert [note[:16] for note in found.notes if "engine speed" in note] == ["A: engine speed:", "B: engine speed:"]
    priced = fs.compare(job, job.with_({"engine.gpu": "H800", PRICE: 5.0}), replications=2).comparison
    assert not any(MISSED in note for note in priced.notes)
    same = fs.compare(job, job.with_({"fleet.instances": 3}), replications=2).comparison
    assert [note[:14] for note in same.notes if "engine speed" in note] == ["A and B: engin"]


@pytest.mark.slow
def test_results_of_runs_are_compared_as_their_jobs() -> None:
    job = fs.load("async-one-step", **SMALL)
    a, b = job.simulate(), job.with_({"engine.gpu": "H800"}).simulate()
    found = fs.compare(a, b).comparison
    assert sum(MISSED in note for note in found.notes) == 1
    assert any(note.startswith("B: engine speed") and "H800" in note for note in found.notes)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("door", ["size", "split", "simulate"])
def test_every_door_tells_the_error_of_its_own_engine(door: str, tmp_path: Path) -> None:
    job = fs.load(batch=64, len=500, gpu="B200", **SMALL)
    found = {"size": job.size, "split": lambda: job.split(4), "simulate": job.simulate}[door]()
    page = found.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    for shown in (found.explained, page):
        assert "on B200-SXM kept out of the fit" in " ".join(shown.split())
    profile = found.to_dict()["profile"]
    assert 0 < profile["error_median"] < profile["error_p90"]
    assert "dense models on B200-SXM" in profile["error_what"]


def test_an_hour_with_instances_that_only_evaluate_costs_what_its_steps_cost() -> None:
    """16 of them, beside 2 + 8 GPUs; of that price 3 instances are best: with 2 step x cost is 1.5 % more."""
    own = {f"evaluation.{k}": v for k, v in {"every_steps": 5, "at": "own", "instances": 16, "seconds": 5.0}.items()}
    job = fs.load(None, own, batch=128, len=600, instances=2, trainer_gpus=8, replications=1)
    result = job.simulate(steps=12)
    mean = result.mean
    assert 3600 * mean["cost_per_step"] / mean["step_s"] == pytest.approx(usd_per_h(job.scenario, 2))
    assert " an hour for 2 + 8 + 16 GPUs" in result.to_json()


@pytest.mark.parametrize(("instances", "trainer_gpus"), [(8, 8), (4, 8)])
def test_an_hour_of_shared_gpus_costs_what_its_steps_cost(instances: int, trainer_gpus: int) -> None:
    job = fs.load(
        None,
        {
            "fleet.placement": "colocated",
            "fleet.instances": instances,
            "trainer.gpus": trainer_gpus,
            "sync.in_flight": "abort_resume",
            "cost.instance_price_usd_per_gpu_h": 2.0,
            "cost.trainer_price_usd_per_gpu_h": 5.0,
        },
        model="Qwen/Qwen2.5-1.5B", batch=64, len=200, replications=1,
    )  # fmt: skip
    mean = job.simulate().mean
    assert 3600 * mean["cost_per_step"] / mean["step_s"] == pytest.approx(usd_per_h(job.scenario, instances))
