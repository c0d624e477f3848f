"""Health before size, in every door: beside a fault that comes first, or on a simulation that misses, nothing is to be
deployed; on histories of a fleet that fleetsim did not simulate."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fleetsim.cli.main import app
from fleetsim.config.load import default_scenario, with_changes
from fleetsim.config.scenario import Scenario
from fleetsim.config.yaml_text import to_yaml
from fleetsim.errors import InputError
from fleetsim.history.history import History
from fleetsim.history.prometheus import Prometheus
from fleetsim.replay.answers import Answers, answer
from fleetsim.replay.change.patch import Deployment
from fleetsim.replay.diagnose.checks.case import Case, Reply
from fleetsim.replay.diagnose.finding import MENDS, Check, Mend
from fleetsim.replay.diagnose.mending import MENDED_BY, unless_mended, withheld
from fleetsim.replay.facts import replay_document
from fleetsim.replay.questions import Questions
from fleetsim.replay.result import ReplayResult
from fleetsim.replay.run import Replayed, replay
from fleetsim.tell.data import dumps
from fleetsim.watch import evaluation as looking
from fleetsim.watch.evaluation import Looker, LookOptions
from fleetsim.watch.exporter import REASONS
from fleetsim.watch.watch import Look
from tests.replay.independent import Job, Ran, run
from tests.replay.windows import STARVED, window

# Name -> (the job, why nothing is recommended of its window).
JOBS: dict[str, tuple[Job, str | None]] = {
    "too small": (Job(each_s=0.0008, instances=3, train_s=20.0, staleness=2.0, n_exported=True), None),
    "max_num_seqs of 16": (Job(max_num_seqs=16, train_s=20.0), "max_num_seqs"),
    "prefix caching off": (Job(caching=False, prompt_tokens=4000, train_s=20.0, n_exported=True), "prefix_cache"),
    "a trainer that slows down": (Job(slow_from=(45, 1.6)), "trainer"),
    "a client's cap": (Job(instances=6, in_flight=96, train_s=20.0, staleness=3.0), "in_flight_cap"),
}
SURE = "too small"


@cache
def ran(name: str) -> Ran:
    return run(JOBS[name][0], hours=1.0)


@cache
def history_of(name: str) -> History:
    return ran(name).history()


def file_of(job: Job, **more: Any) -> tuple[Scenario, frozenset[str]]:
    """What its owner's scenario file says, and its paths; of caps and faults he knows nothing."""
    said = {
        "workload.group_size": job.group,
        "trainer.batch_samples": job.batch,
        "trainer.fixed_s": job.train_s,
        "sync.pause_s": job.sync_s,
        "sync.trainer_block_s": job.sync_s,
        "admission.law": "version_window",
        "admission.max_staleness": job.staleness,
        **{path.replace("__", "."): value for path, value in more.items()},
    }
    return with_changes(default_scenario(), said), frozenset(said)


@cache
def judged(name: str) -> tuple[Replayed, Answers]:
    base, given = file_of(JOBS[name][0])
    result = replay(history_of(name), base, given=given)
    return result, answer(Questions(recommend=True, deployment=Deployment("rollout")), result)


@pytest.mark.parts
@pytest.mark.parametrize("name", JOBS)
def test_a_fleet_is_not_sized_beside_a_fault_that_comes_first(name: str) -> None:
    result, answers = judged(name)
    reason = JOBS[name][1]
    held = result.verdict.withheld
    assert (None if held is None else held.reason) == reason, result.verdict.headline
    assert answers.withheld == held
    assert (answers.recommendation is None) == (answers.plan is None) == (answers.patch is None) == (held is not None)
    document = json.loads(dumps(replay_document(result, answers)))
    assert (document["recommendation"] is None) == (held is not None)
    said = ReplayResult(history_of(name), result, answers, ())
    if held is None:
        assert said.recommendation.instances == document["recommendation"]["instances"]
        assert document["withheld"] is None
        return
    assert document["withheld"]["reason"] == document["verdict"]["withheld"]["reason"] == reason
    with pytest.raises(InputError, match="is withheld: first"):
        _ = said.recommendation
    shown = " ".join(str(said).split())
    assert "Nothing is recommended now: first " in shown
    assert "kubectl" not in shown


def test_the_count_that_is_told_for_afterwards_is_that_of_the_mended_job() -> None:
    """By brute force: the other simulator runs the job without the limit, and that window is sized."""
    _, answers = judged("max_num_seqs of 16")
    assert answers.then is not None
    assert answers.then.was == 4
    assert answers.then.changes["engine.max_num_seqs"] > 256
    job = Job(train_s=20.0)
    base, given = file_of(job)
    mended = replay(run(job, hours=1.0).history(), base, given=given)
    directly = answer(Questions(recommend=True), mended).recommendation
    assert directly is not None
    assert abs(answers.then.instances - directly.instances) <= 1


def test_a_what_if_that_takes_the_fault_away_is_sized() -> None:
    result, _ = judged("max_num_seqs of 16")
    answers = answer(Questions({"engine.max_num_seqs": 128}, recommend=True), result)
    assert answers.withheld is None
    assert answers.recommendation is not None


def test_a_simulation_that_misses_the_window_recommends_nothing() -> None:
    """The limit is the back-test's: a scenario whose law is not the job's is off by more."""
    base, given = file_of(JOBS[SURE][0], admission__law="barrier")
    result = replay(history_of(SURE), base, given=given)
    assert result.backtest is not None
    assert result.backtest.verdict == "wrong"
    held = result.verdict.withheld
    assert held is not None
    assert held.reason == "model"
    assert held.why.startswith("the back-test is off by more than 10 %")
    answers = answer(Questions(recommend=True), result)
    assert (answers.recommendation, answers.then, answers.withheld) == (None, None, held)
    untested = replay(history_of(SURE), back_test=False)
    assert untested.verdict.withheld is not None
    assert "no back-test was made" in untested.verdict.withheld.why


STATES = st.sampled_from(["fault", "ok", "unknown"])


@given(
    states=st.fixed_dictionaries(dict.fromkeys(get_args(Check), STATES)),
    binding=st.sampled_from([None, *get_args(Check)]),
)
def test_one_answer_for_any_findings(states: dict[Any, Any], binding: Check | None) -> None:
    """Sized only where too little to read, a fault that comes first and a simulation that misses are all ruled out."""
    if binding is not None:
        states[binding] = "fault"  # what binds is a fault
    drafts = [Reply(state, f"{check} is {state}", check=check) for check, state in states.items()]
    held = withheld(Case(window(**STARVED), default_scenario()), drafts, binding)
    healthy = states["data"] != "fault" and binding not in MENDS and states["model"] == "ok"
    assert (held is None) == healthy
    if held is None:
        return
    assert held.reason in REASONS
    assert bool(held.first) == (held.reason in MENDS)
    assert held.sizable == (bool(held.first) and states["model"] == "ok")
    everything = [path for check in held.first for path in MENDED_BY[check]]
    if held.first:
        assert unless_mended(held, []) == held
        left = unless_mended(held, everything)
        assert (left is None) == held.sizable
        assert left is None or left.reason == "model"


def test_every_fault_that_comes_first_has_words_and_keys() -> None:
    assert set(MENDS) == set(MENDED_BY) == set(get_args(Mend))
    assert set(MENDS) < set(get_args(Check))


# ------------------------------------------------------------------------------------------------------- the watcher


def looked(monkeypatch: pytest.MonkeyPatch, history: History, **options: Any) -> Look:
    """One evaluation of the watcher on a history."""
    monkeypatch.setattr(looking, "read_prometheus", lambda *args, **more: history)
    prometheus = Prometheus("http://127.0.0.1:9")
    monkeypatch.setattr(prometheus, "query", lambda *args: [])
    monkeypatch.setattr(type(prometheus), "clock_ahead_s", 0.0, raising=False)
    return Looker(prometheus, LookOptions(**options), lambda text: None)(history.end_s)


@pytest.mark.parametrize("name", ["too small", "max_num_seqs of 16", "a trainer that slows down"])
def test_the_watcher_says_what_replay_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result, answers = judged(name)
    base, given = file_of(JOBS[name][0])
    look = looked(monkeypatch, history_of(name), base=base, given=given)
    assert look.withheld == JOBS[name][1]
    assert look.wanted == (None if answers.recommendation is None else answers.recommendation.instances)
    assert look.then == (None if answers.then is None else answers.then.instances)
    assert look.headline == result.verdict.headline


def test_a_resize_that_was_applied_does_not_block_the_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scenario file goes on saying what was there before, or never was: three beside eight, or six, in it missed by
    56 to 66 %, and nothing was recommended ever again."""
    job = Job(instances=4, joined={2: 1800.0, 3: 1800.0}, train_s=25.0, staleness=2.0)
    history = run(job, hours=1.0).history()
    found = []
    for count in (2, 8):
        base, given = file_of(job, fleet__instances=count)
        look = looked(monkeypatch, history, base=base, given=given, facts=frozenset({"fleet.instances"}))
        assert look.withheld is None, look.why
        assert look.current == 4
        found.append((look.wanted, look.predicted_idle))
    assert len(set(found)) == 1


# -------------------------------------------------------------------------------------------------- the command line


def written(folder: Path, name: str) -> tuple[str, str]:
    """The history and its owner's scenario, as files."""
    (folder / "job.yaml").write_text(to_yaml(file_of(JOBS[name][0])[0].model_dump(mode="json", exclude_none=True)))
    return str(ran(name).write(folder / "h.om")), str(folder / "job.yaml")


def test_no_patch_and_no_plan_are_written_and_the_exit_says_so(tmp_path: Path) -> None:
    history, job = written(tmp_path, "max_num_seqs of 16")
    plan, patch = tmp_path / "plan.json", tmp_path / "patch.yaml"
    files = ["--plan-out", str(plan), "--patch", str(patch), "--deployment", "rollout"]
    done = CliRunner().invoke(app, ["replay", "--from", history, "--scenario", job, *files])
    assert done.exit_code == 10, done.output
    assert not plan.exists()
    assert not patch.exists()
    assert "Nothing is recommended now: first raise max_num_seqs" in " ".join(done.stdout.split())
    for file in (plan, patch):
        assert f"{file} is not written: nothing is recommended now: first raise max_num_seqs" in done.stderr


# ------------------------------------------------------------------------------------ the same diagnosis in every door


@pytest.mark.parametrize("name", ["too small", "prefix caching off"])
def test_without_a_back_test_nothing_is_claimed_that_it_refutes(name: str) -> None:
    """The rules alone said "slowest responses" where the simulation says "too few instances"."""
    full, _ = judged(name)
    base, given = file_of(JOBS[name][0])
    alone = replay(history_of(name), base, given=given, model=False, back_test=False).verdict
    assert alone.starves == full.verdict.starves
    by_check = {finding.check: finding for finding in full.verdict.findings}
    for finding in alone.findings:
        if finding.state == "fault" and by_check[finding.check].state != "fault":
            assert finding.title.startswith("suspected: ")
        elif finding.state == "fault" and finding.title != by_check[finding.check].title:
            assert finding.title == f"suspected: {by_check[finding.check].title}" or "only the simulation tells" in (
                finding.title
            )
        elif finding.state == "ok" and finding.check != "rollout":
            assert by_check[finding.check].state != "fault"


def test_verify_diagnoses_as_a_full_replay_does(tmp_path: Path) -> None:
    _, answers = judged("too small")
    assert answers.plan is not None
    history, job = written(tmp_path, SURE)
    (tmp_path / "plan.json").write_text(answers.plan.model_dump_json())
    call = ["replay", "--from", history, "--scenario", job, "--json"]
    verdicts = [
        json.loads(CliRunner().invoke(app, [*call, *more]).stdout)["verdict"]
        for more in ([], ["--verify", str(tmp_path / "plan.json")])
    ]
    assert verdicts[0] == verdicts[1]
