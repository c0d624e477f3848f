"""The logs: every framework's console of jobs that fit, and of jobs that were given something to suffer from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from tests.outside.cases import SHORT_OF, base
from tests.outside.logs import dicts, tables
from tests.outside.logs.lived import Lived, Step, live
from tests.outside.logs.scene import Scene, console
from tests.outside.setting import Setting, Spell

Writer = Callable[[Scene, Step, Random], Iterable[str]]
PHASES = frozenset({"step_s", "wait_s", "train_s", "sync_s", "length_mean", "samples"})


@dataclass(frozen=True)
class Format:
    """A framework's console. law: how it pipelines (`lived.py`). tells: columns that its lines hold the numbers of.
    asks: causes that they can show. Where the seconds of a step are all that is printed, there is none."""

    name: str
    write: Writer
    law: str
    tells: frozenset[str] = PHASES
    asks: frozenset[str] = frozenset({"rollout", "sync", "trainer"})

    @property
    def must(self) -> frozenset[str]:
        """Causes that must be named where they are. Not rollout of a pipeline that is bounded in several ways: only its
        engines could say which bound it was; nor of a synchronous step, whose GPUs may do both in turn."""
        return self.asks - ({"rollout"} if self.law in ("window", "barrier") else set())


NOTHING: frozenset[str] = frozenset()
FORMATS = [
    Format("roll", dicts.roll, "barrier"),
    Format("roll, asynchronous", dicts.roll, "window"),
    Format("openrlhf", dicts.openrlhf, "barrier"),
    Format("openrlhf, asynchronous", dicts.openrlhf_async, "serial"),
    Format("openrlhf, locked", dicts.openrlhf_async, "locked", PHASES - {"wait_s", "sync_s"}),
    Format("slime", dicts.slime, "barrier"),
    Format("slime, asynchronous", dicts.slime, "locked"),
    Format("trl", dicts.trl, "barrier", frozenset({"step_s", "length_mean"}), NOTHING),
    Format(
        "trl, asynchronous",
        dicts.trl_async,
        "window",
        frozenset({"step_s", "sync_s", "length_mean"}),
        frozenset({"sync"}),
    ),
    Format("open-instruct", tables.open_instruct, "window"),
    Format("areal", tables.areal, "window", PHASES - {"length_mean"}),
    Format("nemo-rl", tables.nemo, "barrier", PHASES - {"samples"}),
    Format("nemo-rl, asynchronous", tables.nemo_async, "window", PHASES - {"samples", "length_mean"}),
    Format("skyrl", tables.skyrl, "barrier"),
    Format("skyrl, asynchronous", tables.skyrl_async, "window"),
    Format("prime-rl, trainer", tables.prime, "window", frozenset({"step_s"}), NOTHING),
    Format("prime-rl, orchestrator", tables.prime_orchestrator, "window", frozenset({"step_s", "samples"}), NOTHING),
]

SLOWER = {"trainer_slow": Spell(1.6, 1800.0)}
JOBS: dict[str, list[tuple[str, tuple[str, ...], dict[str, object]]]] = {
    "window": [
        ("fits", (), {}),
        ("undersized", ("rollout",), SHORT_OF),
        ("long sync", ("sync",), {"pause_s": 12.0}),
        ("trainer slower from the middle on", ("trainer",), SLOWER),
        ("undersized and a long sync", ("rollout", "sync"), {"train_s": 6.0, "pause_s": 10.0, "staleness": 2.0}),
    ],
    "barrier": [
        ("barrier", ("rollout",), {"instances": 6, "hours": 1.5}),
        ("barrier and a long sync", ("rollout", "sync"), {"instances": 6, "hours": 1.5, "pause_s": 20.0}),
        ("barrier, trainer slower", ("rollout", "trainer"), {"instances": 8, "hours": 1.5, "train_s": 40.0, **SLOWER}),
        ("long training", (), {"instances": 8, "hours": 2.0, "train_s": 200.0, "median": 60.0}),
    ],
    "serial": [
        ("fits", (), {"instances": 6, "train_s": 90.0, "hours": 2.0}),
        ("undersized", ("rollout",), {"instances": 3, "hours": 1.5}),
        ("long sync", ("sync",), {"instances": 6, "train_s": 90.0, "pause_s": 30.0, "hours": 2.0}),
        ("trainer slower", ("trainer",), {"instances": 6, "train_s": 90.0, "hours": 2.0, **SLOWER}),
    ],
}
JOBS["locked"] = JOBS["serial"]


@dataclass(frozen=True)
class Log:
    """One console, and the job behind it."""

    format: Format
    what: str
    put_in: frozenset[str]
    setting: Setting
    seed: int

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.format.name}: {self.what}"

    def live(self) -> Lived:
        """The job's life."""
        return live(self.setting, self.format.law)

    def text(self, lived: Lived) -> str:
        """Its console."""
        return console(Scene(lived, self.seed), self.format.write)


def _logs() -> list[Log]:
    found = []
    for each in FORMATS:
        for what, put_in, changes in JOBS[each.law]:
            staleness = {} if each.law == "window" else {"staleness": 0.0}
            setting = base(what, **{**staleness, **changes})
            found.append(Log(each, what, frozenset(put_in), setting, len(found)))
    return found


LOGS = _logs()
