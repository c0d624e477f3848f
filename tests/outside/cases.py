"""The histories: jobs of the outside world, and what each was given to suffer from (`put_in`).

A cause has the name of the question of the runbook that it answers: rollout (too few instances, or the recipe waits for
the slowest responses), stragglers, sync, trainer, in_flight_cap, max_num_seqs, preemptions, prefix_cache, backlog.
"""

from dataclasses import dataclass, replace

from tests.outside.setting import Absence, Ramp, Setting, Spell

HALF = 1800.0


@dataclass(frozen=True)
class Case:
    """A history: the job asked about, who else is on that Prometheus, and what was put in."""

    job: Setting
    put_in: frozenset[str] = frozenset()
    beside: tuple[Setting, ...] = ()
    selector: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return self.job.name

    def first(self, hours: float) -> "Case":
        """Its beginning: the same life, seen for less time."""
        return replace(self, job=self.job.but(hours=hours), beside=tuple(job.but(hours=hours) for job in self.beside))


def base(name: str, **changes: object) -> Setting:
    """A job that fits: three instances, 256 samples a step, 20 s of training, a second of sync."""
    return Setting(name, **({"instances": 3, "staleness": 3.0} | changes))  # type: ignore[arg-type]


def case(name: str, *put_in: str, **changes: object) -> Case:
    """One job alone."""
    return Case(base(name, **changes), frozenset(put_in))


def serving(name: str, *put_in: str, **changes: object) -> Case:
    """Requests of users: no trainer, no weights that change."""
    usual: dict[str, object] = {"batch": 0, "group": 1, "arrivals": 12.0, "pause_s": 0.0, "route": "round"}
    return Case(base(name, **(usual | changes)), frozenset(put_in))


LONG: dict[str, object] = {"prompt": 6000, "prefill_tokens_per_s": 16_000.0, "kv_tokens": 1_600_000}
SHORT_OF: dict[str, object] = {"batch": 64, "staleness": 2.0, "max_num_seqs": 1024, "kv_tokens": 1_200_000}

HEALTHY = [
    case("healthy"),
    case("healthy, SGLang", engine="sglang"),
    case("healthy, TensorRT-LLM", engine="trtllm"),
    case("healthy, vLLM 0.8 names", engine="vllm-0.8"),
    case("healthy, scraped every second", scrape_s=1.0, hours=0.4),
    case("healthy, scraped every minute", scrape_s=60.0, hours=3.0),
    case("healthy, rolling sync", rolling=True, pause_s=2.0, scrape_s=5.0),
    case("healthy, pod renamed", absences=(Absence(1, 1200.0, 1290.0, renamed=True),)),
    case("healthy, two holes", holes=((900.0, 1500.0), (2400.0, 2760.0))),
    case("healthy, four ranks on a server", ranks=4, instances=4, train_s=16.0),
    case("healthy, sync every four steps", sync_every=4, pause_s=2.0),
    case("healthy, prompts of 6,000 cached", instances=6, train_s=24.0, route="group", **LONG),
]

SINGLE = [
    case("undersized", "rollout", **SHORT_OF),
    case("undersized, by far", "rollout", **(SHORT_OF | {"batch": 96})),
    case("undersized, Ray, every 5 s", "rollout", engine="ray-vllm", scrape_s=5.0, **SHORT_OF),
    case("undersized, SGLang, every 30 s", "rollout", engine="sglang", scrape_s=30.0, hours=2.0, **SHORT_OF),
    case("undersized, TensorRT-LLM", "rollout", engine="trtllm", **SHORT_OF),
    case("undersized, holes", "rollout", holes=((900.0, 1500.0),), hours=1.5, **SHORT_OF),
    case("undersized, eight instances", "rollout", instances=8, **(SHORT_OF | {"batch": 160})),
    case("an instance lost for the second half", "rollout", absences=(Absence(2, HALF),), train_s=14.0),
    case("longer responses from the middle on", "rollout", longer=Spell(2.0, HALF), train_s=16.0),
    case("the longest response, staleness 1", "rollout", instances=6, staleness=1.0),
    case("barrier", "rollout", instances=6, staleness=0.0),
    case("straggler", "stragglers", instances=4, train_s=12.0, slow={2: Spell(2.0)}, route="round"),
    case(
        "straggler, round robin, SGLang",
        "stragglers",
        instances=4,
        train_s=12.0,
        slow={1: Spell(2.0)},
        route="round",
        engine="sglang",
    ),
    case(
        "straggler comes and goes",
        "stragglers",
        instances=4,
        train_s=12.0,
        slow={0: Spell(2.5, 1000.0, 2600.0)},
        route="round",
    ),
    case(
        "a slow rank of four on a server",
        "stragglers",
        instances=4,
        ranks=4,
        train_s=12.0,
        slow={3: Spell(2.0)},
        route="round",
    ),
    case("sync of 12 s", "sync", pause_s=12.0),
    case("sync of 45 s every four steps", "sync", pause_s=45.0, sync_every=4),
    case(
        "sync of 12 s, counted by the engines",
        "sync",
        pause_s=12.0,
        weight_update_metric=True,
        scrape_s=30.0,
        hours=2.0,
    ),
    case("sync grows from the middle on", "sync", pause_s=2.0, sync_slow=Spell(8.0, HALF)),
    case("rolling sync of 15 s", "sync", instances=4, rolling=True, pause_s=15.0, train_s=16.0, scrape_s=5.0),
    case("trainer slower from the middle on", "trainer", trainer_slow=Spell(1.6, HALF)),
    case("trainer slow for a while", "trainer", trainer_slow=Spell(2.0, 1200.0, 2600.0)),
    case("in-flight cap", "in_flight_cap", instances=4, in_flight=64),
    case("in-flight cap, every 5 s", "in_flight_cap", in_flight=48, scrape_s=5.0),
    case("max_num_seqs of 24", "max_num_seqs", instances=4, max_num_seqs=24, train_s=14.0),
    case("KV cache too small", "preemptions", instances=4, kv_tokens=36_000, train_s=14.0),
    case("prefix cache off, prompts of 6,000", "prefix_cache", instances=6, train_s=24.0, prefix_caching=False, **LONG),
    case("siblings spread, prompts of 6,000", "prefix_cache", instances=8, train_s=12.0, **LONG),
    case("four times too many", "backlog", instances=12),
    case("the queue grows without bound", "backlog", bounded=False, in_flight=500, instances=6),
    case("half of the samples too old", "backlog", bounded=False, in_flight=500, max_age=2, instances=4),
]

PAIRS = [
    case("undersized and a straggler", "rollout", "stragglers", train_s=6.0, slow={1: Spell(2.0)}, route="round"),
    case(
        "undersized and a straggler, five instances, SGLang",
        "rollout",
        "stragglers",
        instances=5,
        batch=90,
        train_s=7.0,
        slow={3: Spell(1.7)},
        route="round",
        engine="sglang",
        hours=0.5,
    ),
    case("undersized and a long sync", "rollout", "sync", train_s=6.0, pause_s=10.0, staleness=2.0),
    case("trainer slower and a long sync", "trainer", "sync", trainer_slow=Spell(1.6, HALF), pause_s=8.0),
    case("in-flight cap and a long sync", "in_flight_cap", "sync", instances=4, in_flight=64, pause_s=8.0),
    case(
        "straggler and a long sync",
        "stragglers",
        "sync",
        instances=4,
        train_s=8.0,
        slow={2: Spell(2.0)},
        route="round",
        pause_s=6.0,
    ),
    case("too many, and the trainer slows down", "backlog", "trainer", instances=12, trainer_slow=Spell(1.6, HALF)),
    case(
        "prefix cache off and a straggler",
        "prefix_cache",
        "stragglers",
        instances=5,
        train_s=14.0,
        prefix_caching=False,
        slow={0: Spell(1.8)},
        route="round",
        **LONG,
    ),
    case(
        "small KV cache and a long sync",
        "preemptions",
        "sync",
        instances=4,
        kv_tokens=36_000,
        train_s=12.0,
        pause_s=6.0,
    ),
]

MIXED = [
    Case(
        base("undersized, another job beside it", job="math", **SHORT_OF),
        frozenset({"rollout"}),
        (base("beside", job="code", instances=4, train_s=24.0),),
        'job=~"math(-trainer)?"',
    ),
    Case(
        base("healthy, a straggling job beside it", job="math"),
        frozenset(),
        (base("beside", job="code", instances=4, slow={1: Spell(2.5)}, route="round"),),
        'job=~"math(-trainer)?"',
    ),
    Case(
        base("healthy, a judge beside the policy"),
        frozenset(),
        (
            base(
                "judge",
                batch=0,
                group=1,
                arrivals=6.0,
                job="judge",
                model="judge-32b",
                instances=2,
                median=120.0,
                route="round",
            ),
        ),
        'job=~"rollout(-trainer)?"',
    ),
]

POLICY = 'model_name="Qwen/Qwen3-8B"'


def judge(**changes: object) -> Setting:
    """Another model behind the same addresses and pods as the policy: a judge that users ask as well."""
    usual: dict[str, object] = {"batch": 0, "group": 1, "arrivals": 6.0, "median": 120.0, "route": "round"}
    return base("judge", **(usual | {"model": "judge-32b", "instances": 3} | changes))


# Servers of several models, or of several data-parallel ranks, told apart by the labels model_name, engine and dp_rank.
SERVERS = [
    Case(base("healthy, two models on each server"), frozenset(), (judge(),), POLICY),
    Case(base("undersized, two models on each server", **SHORT_OF), frozenset({"rollout"}), (judge(),), POLICY),
    Case(
        base("healthy, the other model straggles", instances=4),
        frozenset(),
        (judge(instances=4, slow={1: Spell(3.0)}, arrivals=12.0),),
        POLICY,
    ),
    Case(
        base(
            "a straggler, two models on each server, SGLang",
            instances=4,
            train_s=12.0,
            slow={2: Spell(2.0)},
            route="round",
            engine="sglang",
        ),
        frozenset({"stragglers"}),
        (judge(instances=4, engine="sglang"),),
        POLICY,
    ),
    Case(
        base(
            "a slow rank, two models of four ranks on each server",
            instances=8,
            ranks=4,
            train_s=8.0,
            slow={5: Spell(2.0)},
            route="round",
        ),
        frozenset({"stragglers"}),
        (judge(instances=8, ranks=4),),
        POLICY,
    ),
    case("healthy, two ranks on each server, SGLang", engine="sglang", ranks=2, instances=4, train_s=16.0),
    case("undersized, eight ranks on a server", "rollout", instances=8, ranks=8, **(SHORT_OF | {"batch": 160})),
    case(
        "undersized, two ranks on each server, SGLang",
        "rollout",
        engine="sglang",
        instances=4,
        ranks=2,
        **(SHORT_OF | {"batch": 80}),
    ),
    case(
        "a slow rank of two on each server, SGLang",
        "stragglers",
        engine="sglang",
        instances=4,
        ranks=2,
        train_s=12.0,
        slow={1: Spell(2.0)},
        route="round",
    ),
    case(
        "sync of 12 s, four ranks on a server, Ray",
        "sync",
        engine="ray-vllm",
        instances=4,
        ranks=4,
        pause_s=12.0,
        train_s=16.0,
    ),
    Case(
        base(
            "undersized, four ranks, another job of two ranks",
            job="math",
            instances=4,
            ranks=4,
            **(SHORT_OF | {"batch": 80}),
        ),
        frozenset({"rollout"}),
        (base("beside", job="code", instances=4, ranks=2, train_s=24.0),),
        'job=~"math(-trainer)?"',
    ),
]

SERVING = [
    serving("serving, healthy"),
    serving("serving, a wave of users", swing=0.5, arrivals=9.0),
    serving("serving, every 30 s, SGLang", engine="sglang", scrape_s=30.0, hours=2.0),
    serving("serving, overloaded", "rollout", arrivals=44.0, max_num_seqs=1024, kv_tokens=1_200_000),
    serving("serving, a straggler", "stragglers", slow={1: Spell(1.7)}),
    serving("serving, KV cache too small", "preemptions", kv_tokens=60_000, arrivals=12.5),
    serving("serving, max_num_seqs of 40", "max_num_seqs", max_num_seqs=40, arrivals=8.6),
]

# What else happens to a job: nodes that come and go, clients, balancers and reward servers that are the bottleneck,
# evaluations and checkpoints between steps, agents with tools, releases of other engines.
LIFE = [
    case(
        "spot nodes preempted and back",
        "rollout",
        instances=4,
        train_s=12.0,
        absences=(Absence(1, 900.0, 1900.0, renamed=True), Absence(3, 1500.0, 2900.0, renamed=True)),
    ),
    case(
        "healthy, every pod replaced in turn",
        absences=tuple(Absence(i, 600.0 + 900 * i, 660.0 + 900 * i, renamed=True) for i in range(3)),
    ),
    case("KV cache thrashes, SGLang", "preemptions", instances=4, kv_tokens=24_000, train_s=14.0, engine="sglang"),
    case("prefix caches emptied at each sync", instances=6, train_s=24.0, route="group", flushed=True, **LONG),
    case("sync of 20 s, no scrape answered meanwhile", "sync", pause_s=20.0, deaf=True),
    case("sync of 12 s, TensorRT-LLM", "sync", pause_s=12.0, engine="trtllm"),
    case("a balancer that prefers one instance", "stragglers", instances=4, train_s=12.0, stuck=0.6),
    case("a client that sends 9 requests a second", "in_flight_cap", instances=4, sends_per_s=9.0),
    case("a reward server slow on some samples", "rollout", instances=5, staleness=1.0, reward_s=6.0),
    case("responses grow longer all the time", "rollout", longer=Ramp(2.5, 0.0, 3600.0), train_s=14.0),
    case(
        "straggler, TensorRT-LLM",
        "stragglers",
        instances=4,
        train_s=12.0,
        slow={1: Spell(2.0)},
        route="round",
        engine="trtllm",
    ),
    case("in-flight cap, SGLang 0.4", "in_flight_cap", instances=4, in_flight=64, engine="sglang-0.4"),
    case("healthy, a test set every ten steps", tests_every=10, tests=400),
    case("healthy, a checkpoint every 20 steps", saves_every=20, save_s=15.0),
    case("healthy, four turns with tools of 5 s", instances=7, median=150.0, turns=4, tool_s=5.0, train_s=26.0),
    case(
        "undersized, four turns with tools of 10 s",
        "rollout",
        median=200.0,
        turns=4,
        tool_s=10.0,
        **(SHORT_OF | {"batch": 80, "staleness": 4.0}),
    ),
]

CASES = [*HEALTHY, *SINGLE, *PAIRS, *MIXED, *SERVERS, *SERVING, *LIFE]
