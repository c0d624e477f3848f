"""What is true of a history: each cause is taken away in the outside world, and what that saves is its size.

    python -m tests.outside.truth [NAME...]     prints it; `--write` keeps it in truth.json

A cause must be named where it was put in and taking it away saves at least MUST of a step (of the mean latency, where
there is no trainer). It may be named where it was put in, or where taking it away saves at least MAY.
"""

import json
import math
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tests.outside.cases import CASES, Case
from tests.outside.setting import ALWAYS_ONE, Setting
from tests.outside.world import World

MUST, MAY = 0.05, 0.02
IDLE = 0.05  # the target of a trainer's wait that replay assumes unless told
KEPT = Path(__file__).with_name("truth.json")


@dataclass(frozen=True)
class Truth:
    """Causes that must and that may be named, what each saves (shares), and the count that holds the targets."""

    must: tuple[str, ...]
    may: tuple[str, ...]
    saves: dict[str, float]
    instances: int | None


def remedies(it: Setting) -> dict[str, list[Setting]]:
    """For each cause, the same job without it; where there are several ways, each."""
    more = it.but(instances=it.instances + max(math.ceil(it.instances / 4), 1))
    ways: dict[str, list[Setting]] = {
        "rollout": [
            more,
            it.but(staleness=it.staleness + 2),
            it.but(absences=()),
            it.but(longer=ALWAYS_ONE),
            it.but(reward_s=0.0),
        ],
        "stragglers": [it.but(slow={}), it.but(stuck=0.0)],
        "sync": [it.but(pause_s=0.0)],
        "trainer": [it.but(trainer_slow=ALWAYS_ONE), it.but(save_s=0.0)],
        "in_flight_cap": [it.but(in_flight=10**9 if it.bounded else it.in_flight * 2), it.but(sends_per_s=math.inf)],
        "max_num_seqs": [it.but(max_num_seqs=1024)],
        "preemptions": [it.but(kv_tokens=it.kv_tokens * 3)],
        "prefix_cache": [it.but(prefix_caching=True, route="group")],
    }
    return {cause: [way for way in tried if way != it] for cause, tried in ways.items()}


def lived(it: Setting) -> tuple[float, dict[str, bool]]:
    """What `worth` says, and whether what only a full engine shows was there at all."""
    world = World(it).run()
    waited = any(engine.counters.scheduled.total > 60 for engine in world.engines)
    preempted = any(engine.counters.preempted for engine in world.engines)
    shown = {"max_num_seqs": waited, "preemptions": preempted, "prefix_cache": it.group > 1}
    return of(world), shown


def worth(it: Setting) -> float:
    """Seconds of a step, or of a request where there is no trainer."""
    return of(World(it).run())


def of(world: World) -> float:
    """The same, of a world that has lived."""
    it = world.setting
    if it.batch:
        return it.hours * 3600 / max(world.trainer.steps, 1)
    # requests that are still there count with the time that they have waited, or an overload would look fast
    waited = sum(it.hours * 3600 - r.born for e in world.engines for r in [*e.running.values(), *e.waiting])
    return (world.latency + waited) / max(world.started, 1)


def idle(it: Setting) -> float:
    """Share of its time for which the trainer waits, without the first tenth, in which the pipeline fills."""
    world = World(it)
    begin, early = it.hours * 360, []
    world.at(begin, lambda now: early.append(world.waited(now)))
    world.run()
    return (world.waited(it.hours * 3600) - early[0]) / (it.hours * 3600 - begin)


def enough(it: Setting) -> int | None:
    """The fewest instances at which the trainer waits no more than it should, or None where no number does."""
    plain = it.but(absences=(), hours=min(it.hours, 0.6))
    few, many = 0, 2 * it.instances + 6
    if idle(plain.but(instances=many)) > IDLE:
        return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if idle(plain.but(instances=middle)) <= IDLE else (middle, many)
    return many


def truth(case: Case) -> Truth:
    """Takes each cause away."""
    it = case.job
    now, happened = lived(it)
    saves = {
        cause: max((1 - worth(way) / now for way in ways), default=0.0)
        for cause, ways in remedies(it).items()
        if cause in case.put_in or cause not in happened or happened[cause]
    }
    saves = {cause: round(saved, 3) for cause, saved in saves.items()}
    must = {cause for cause in case.put_in if saves.get(cause, 0.0) >= MUST}
    may = set(case.put_in) | {cause for cause, saved in saves.items() if saved >= MAY}
    if it.batch and worth(it.but(instances=max(3 * it.instances // 4, 1))) <= 1.01 * now and it.instances > 1:
        may.add("backlog")
    if case.put_in == {"backlog"}:  # beside another cause the runbook sizes last
        must.add("backlog")
    sized = it.batch and case.put_in <= {"rollout"} and it.bounded and it.staleness >= 2
    return Truth(tuple(sorted(must)), tuple(sorted(may)), saves, enough(it) if sized else None)


def kept() -> dict[str, Truth]:
    """Of every case, as truth.json keeps it."""
    rows = json.loads(KEPT.read_text(encoding="utf-8"))
    return {
        name: Truth(**{f.name: tuple(row[f.name]) if f.name in ("must", "may") else row[f.name] for f in fields(Truth)})
        for name, row in rows.items()
    }


def main(names: list[str]) -> None:
    """Prints, and with --write keeps."""
    chosen = [case for case in CASES if not set(names) - {"--write"} or case.name in names]
    rows = {}
    for case in chosen:
        row = rows[case.name] = asdict(truth(case))
        print(f"{case.name}: must {row['must']}, may {row['may']}, count {row['instances']}")
        print("    " + ", ".join(f"{cause} {saved:.1%}" for cause, saved in row["saves"].items()), flush=True)
    if "--write" in names:
        old = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
        KEPT.write_text(json.dumps(old | rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
