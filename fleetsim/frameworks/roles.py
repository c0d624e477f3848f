"""Beside the policy: an agent's turns, and models (critics, references, teachers, judges, adapters) with their GPUs.

A scenario has two pools, the trainer's and the engines'. Judges, reward models and teachers on GPUs of their own are
its stations. What else holds GPUs beside them is counted and named: a plan knows neither its cost nor its seconds. A
trajectory has its turns and the tokens of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetsim import units
from fleetsim.frameworks import common
from fleetsim.frameworks.draft import Apart, Draft, ServedModel
from fleetsim.frameworks.reading import Back, Read, one_of, times, writes

REFERENCE, CRITIC, TUNE = "trainer.recipe.reference", "trainer.recipe.critic", "trainer.recipe.tune"
REWARD = "workload.reward.latency_s"
# rLLM's default of a workflow's time limit.
_NO_LIMIT_S = 1e6


_LIKE_THE_POLICYS = ServedModel()


def served(draft: Draft, models: Sequence[str], ranks: Sequence[str] = (), usual: int = 0) -> ServedModel:
    """The engines that settings describe. models, ranks: the keys of either, of which ranks are multiplied."""
    model = draft.maybe_text(*models)
    size = math.prod(draft.count(key, default=usual if at == 0 else 1).value for at, key in enumerate(ranks))
    return ServedModel("" if model is None else common.model_name(model.value), size if ranks else usual)


def judged(draft: Draft, who: str, gpus: int = 0, by: ServedModel = _LIKE_THE_POLICYS) -> None:
    """Something that scores samples, of which no configuration says how long it takes."""
    if gpus and not draft.is_given(REWARD):
        draft.apart.append(Apart("judge", who, gpus, by))
    else:
        _waited_for(draft, who, gpus)


def _waited_for(draft: Draft, who: str, gpus: int) -> None:
    """What makes a sample wait, for seconds that nobody said."""
    draft.assume(REWARD, 0.0, _apart(draft, who, gpus), f"--set {REWARD}=SECONDS, {_OWN}")


def workers(draft: Draft, station: str, reads: Sequence[Read[int] | None], key: str = "") -> None:
    """Workers that serve the calls of tools, or score samples (`reward`): those of all pools together.

    key: where they would stand, for a framework that can be told.
    """
    path, found = f"stations.{station}.workers", [read for read in reads if read is not None and read.value]
    if not found:
        draft.could(path, None, writes(key), None)
        return
    why = "" if len(found) == 1 else "of all pools together"
    draft.put(path, sum(read.value for read in found), *found, why=why)


def judges(draft: Draft, *keys: str, by: Callable[[Draft, str], None] = judged) -> None:
    """Judges that settings name. by: what another kind of model does."""
    for read in map(draft.maybe_text, keys):
        if read is not None:
            by(draft, str(read))


def taught(draft: Draft, who: str, gpus: int = 0, by: ServedModel = _LIKE_THE_POLICYS) -> None:
    """A teacher: engines that read every sample, where it has GPUs of its own."""
    if gpus:
        draft.apart.append(Apart("teacher", who, gpus, by))
    else:
        passed(draft, who)


def put_stations(draft: Draft, speed: common.TrainerSpeed | None) -> None:
    """Who reads every sample on GPUs of its own, once the policy's engines are known: engines of its own model, where
    it is named and known, else like the policy's; as many as fit. They answer with a score or with log-probabilities.

    Of several models of a station that with the most GPUs stands for all.
    """
    policy = {key: draft.given.get(f"engine.{key}", draft.values.get(f"engine.{key}")) for key in ("model", "gpu")}
    tp, pp = (draft.given.get(f"engine.{key}", draft.values.get(f"engine.{key}", 1)) for key in ("tp", "pp"))
    for station in dict.fromkeys(one.station for one in draft.apart):
        whose = [one for one in draft.apart if one.station == station]
        first = max(whose, key=lambda one: one.gpus).by
        known = bool(first.model) and (speed is None or speed(first.model, str(policy["gpu"]), 1) is not None)
        path, ranks = f"stations.{station}.instances", first.ranks or tp * pp
        count = sum(one.gpus for one in whose) // ranks
        if not count:
            for one in whose:
                _waited_for(draft, one.who, one.gpus)
            continue
        own = {"tp": first.ranks} if first.ranks else {"tp": tp, "pp": pp}
        engine = {**policy, **({"model": first.model} if known else {}), **own}
        who = "; ".join(f"{one.who}, on {units.plural(one.gpus, 'GPU')} of its own" for one in whose)
        like = f"of {first.model}" if known else "like the policy's" + f", for {first.model}" * bool(first.model)
        why = f"{who}: engines {like}, which answer with a score or log-probabilities"
        more = "" if known else f" --set stations.{station}.engine.model=MODEL"
        remedy = f"--set {path}=N{more} --set stations.{station}.output_tokens=N"
        draft.assume(path, count, why, remedy)
        if not draft.is_given(f"stations.{station}"):
            told = {key: value for key, value in engine.items() if value not in (None, 1)}
            draft.values |= {f"stations.{station}.engine.{key}": value for key, value in told.items()}


def passed(draft: Draft, who: str, gpus: int = 0, path: str = REFERENCE) -> None:
    """A teacher, or a reference on GPUs of its own: its pass over every sample, as a reference of the policy's size
    makes it on the trainer's GPUs. path: of the policy's own pass, where it is that."""
    why = f"{_apart(draft, who, gpus)}; its pass is timed as one of the policy's size, on the trainer's GPUs"
    made = path == REFERENCE or draft.values.get(path, True)
    draft.assume(path, made, why, f"--set {path}=false --set trainer.phases=[], where it keeps up")


def critic(draft: Draft, on: Read[Any], made: bool, back: Back, gpus: int = 0) -> None:
    """A critic of the policy's size. gpus: its own, where it does not sit on the trainer's."""
    draft.could(CRITIC, made, back, False)
    if made and gpus:
        why = f"{_apart(draft, str(on), gpus)}; its passes and update are timed on the trainer's GPUs"
        draft.assume(CRITIC, True, why, f"--set {CRITIC}=false")
    elif made:
        draft.put(CRITIC, True, on, back=back)


def adapters(draft: Draft, on: Read[Any], active: bool | None = None) -> None:
    """Adapters are trained, not all weights. on: their rank, or the switch."""
    made = bool(on.value) if active is None else active
    draft.put(TUNE, "lora" if made else "full", on, why="adapters are trained", back=one_of({}), unless="full")


def nodes(draft: Draft, count: str | tuple[str, ...], each: str | tuple[str, ...], default: int = 1) -> int:
    """GPUs of a role: its nodes times the GPUs of each, where a setting says either; else 0."""
    keys = [(key,) if isinstance(key, str) else key for key in (count, each)]
    if not draft.settings.has(*keys[0], *keys[1]):
        return 0
    return times(draft.count(*keys[0], default=1), draft.count(*keys[1], default=default)).value


def _apart(draft: Draft, who: str, gpus: int) -> str:
    draft.other_gpus += gpus
    return f"{who}, on {units.plural(gpus, 'GPU')} that no pool of the plan holds" if gpus else who


TURNS, TURN_CAP, _TOOL_S = (f"workload.turns.{key}" for key in ("count", "max_output_tokens", "tool_latency_s"))
_OWN = "from your own logs"


def put_turns(draft: Draft, turns: Read[int] | None, key: str = "", marker: str = "") -> None:
    """The turns of a trajectory. A configuration says their cap; a trajectory takes all of them here.

    turns: the cap, None where no setting says it. key: where it would stand. marker: what shows that there are several
    turns; empty where nothing does.
    """
    if turns is None and not marker:
        draft.could(TURNS, 1, writes(key), 1)
    elif turns is None:
        if key:
            draft.could(TURNS, 1, writes(key), 1)
        draft.assume(TURNS, 1, f"{marker}: no setting says how many turns", f"--set {TURNS}=N, {_OWN}")
        _tools(draft)
    else:
        draft.put(TURNS, turns.value, turns, why="the cap: every trajectory takes all its turns", unless=1)
        if turns.value > 1:
            draft.guesses.add(TURNS)
            _tools(draft)


def limited(draft: Draft, what: str, seconds: Read[float] | None, lost: str, why: str) -> None:
    """The time limit of a "turn", an "episode" or the calls of "tools", where a setting says one, and what becomes of
    the rollout."""
    if seconds is not None and seconds.value > 0:
        draft.put(f"stations.{what}.timeout_s", seconds.value, seconds)
        draft.semantics(f"stations.{what}.lost", lost, why)


def workflow_limited(draft: Draft) -> None:
    """rLLM's time limit of a workflow. rllm/workflows/workflow.py, run_with_termination_handling: what there is then is
    trained, unless rllm/trainer/algorithms/config.py, should_mask, leaves it out."""
    seconds = draft.maybe_number("rllm.workflow.workflow_args.timeout", "workflow.workflow_args.timeout")
    filtered = draft.flag("rllm.compact_filtering.enable", "compact_filtering.enable", default=False)
    late = draft.flag("rllm.compact_filtering.mask_timeout", "compact_filtering.mask_timeout", default=True)
    left_out = filtered.value and late.value
    why = "compact_filtering leaves it out of its group" if left_out else "what it has is trained"
    if seconds is not None and seconds.value < _NO_LIMIT_S:
        limited(draft, "episode", seconds, "dropped" if left_out else "truncated", why)


def fewest(*caps: Read[int] | None) -> Read[int] | None:
    """Of several caps the one that binds; None where there is none."""
    return min((cap for cap in caps if cap is not None), key=lambda cap: cap.value, default=None)


def turns_of_calls(calls: Read[int] | None) -> Read[int] | None:
    """Turns of a trajectory whose calls of tools stand between them."""
    return None if calls is None else calls.plus(1)


def _tools(draft: Draft) -> None:
    draft.assume(_TOOL_S, 1.0, "seconds of one tool call or step of the environment", f"--set {_TOOL_S}=S, {_OWN}")


def trajectory(
    draft: Draft,
    turn: Read[int],
    turns: Read[int] | None,
    whole: Read[int] | None,
    whole_key: str = "",
    *,
    several: bool = False,
) -> Read[int]:
    """Tokens that a trajectory generates at most: the cap of a turn in each of them, within the cap of the whole.

    It puts the cap of a turn, where the number of turns is known: a guess of one turn would be cut by it.

    turn, whole: the caps, None where there is none. several: there are turns, of which no setting says how many; only
    the cap of the whole then holds. whole_key: where that would stand.
    """
    count = 1 if turns is None else turns.value
    if count == 1 and not (several and whole is not None):
        return turn
    if count > 1:
        draft.take(TURN_CAP, turn, why="the cap of one turn")
    product = math.inf if turns is None else count * turn.value

    def back(want: Any) -> Mapping[str, Any] | None:
        if not isinstance(want, int):
            return None
        each = turn.written(-(-want // count)) or {}
        rest = whole or Read(whole_key, 1, False)
        over = whole is not None and (want > whole.value or whole.value < product)
        return {**each, **(rest.written(want) or {})} if want % count or over else each

    if whole is not None and whole.value < product:
        return Read(whole.key, whole.value, whole.given, back)
    read = times(turn, turns) if turns is not None else turn
    return Read(read.key, read.value, read.given, back)
