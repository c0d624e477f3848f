"""What every console has: a wall clock, prefixes that Ray puts before a line, and lines about other things."""

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tests.outside.logs.lived import Lived, Step

BEGIN = datetime(2026, 8, 20, 9, 0, 0, tzinfo=UTC)
CYAN, GREEN, RESET = "\x1b[36m", "\x1b[32m", "\x1b[0m"


@dataclass(frozen=True)
class Scene:
    """A job that lived, and what a framework's console could not know of it: losses, rewards, paths."""

    lived: Lived
    seed: int

    @property
    def steps(self) -> list[Step]:
        """Its steps."""
        return self.lived.steps

    def random(self) -> random.Random:
        """Numbers that mean nothing."""
        return random.Random(self.seed)


def clock(seconds: float, shape: str = "%Y-%m-%d %H:%M:%S") -> str:
    """The wall clock, so many seconds into the job."""
    return (BEGIN + timedelta(seconds=seconds)).strftime(shape)


def ray(actor: str, line: str, ip: str = "") -> str:
    """A line that reached the driver from an actor of Ray."""
    where = f", ip={ip}" if ip else ""
    return f"{CYAN}({actor} pid={4000 + sum(map(ord, actor)) % 997}{where}){RESET} {line}"


def beginning(random: random.Random) -> Iterator[str]:
    """What stands before the first step."""
    yield "2026-08-20 08:52:11,402\tINFO worker.py:1888 -- Started a local Ray instance. Dashboard at 127.0.0.1"
    yield "`torch_dtype` is deprecated! Use `dtype` instead!"
    for part in range(1, 5):
        yield bar(part, 4, part * 1.02, "Loading checkpoint shards")
    yield "INFO 08-20 08:53:40 [gpu_model_runner.py:1801] Model loading took 15.27 GiB and 4.21 seconds"
    yield "INFO 08-20 08:54:02 [kv_cache_utils.py:864] GPU KV cache size: 412,336 tokens"
    yield "config: {'lr': 1e-06, 'steps': 1000, 'batch': {'size': 32}, 'step': 0}"
    yield f"Total parameters: {random.randint(7, 9)}.61B"


def between(random: random.Random, step: Step) -> Iterator[str]:
    """What stands between steps: engines, warnings, checkpoints; some look like metrics and are none."""
    at = clock(step.begin + step.wait_s / 2, "%m-%d %H:%M:%S")
    rate = sum(step.lengths) / max(step.step_s, 1e-9)
    yield (
        f"{ray('EngineCore_DP0', '')}INFO {at} [loggers.py:123] Engine 000: "
        f"Avg prompt throughput: {rate / 3:.1f} tokens/s, "
        f"Avg generation throughput: {rate:.1f} tokens/s, Running: {random.randint(8, 80)} reqs, "
        f"Waiting: 0 reqs, GPU KV cache usage: {random.uniform(5, 80):.1f}%, Prefix cache hit rate: 71.3%"
    )
    if step.number % 7 == 3:
        yield f"{ray('raylet', '')}[repeated 7x across cluster] Spilled 2817 MiB, 112 objects, throughput 804 MiB/s."
    if step.number % 10 == 5:
        yield ""
        yield f"Saving model checkpoint to output/checkpoint-{step.number}"
        yield "site-packages/torch/utils/checkpoint.py:85: UserWarning: None of the inputs have requires_grad=True"
    if step.number % 11 == 6:
        yield "Sample: \"<think> step: 3 gives timing_s/step = 7, so {'step_time': 99.0} </think> The answer is 42.\""


def console(
    scene: Scene, told: Callable[[Scene, Step, random.Random], Iterable[str]], begins: Iterable[str] = ()
) -> str:
    """The whole of a console: the beginning, each step with what stands between, and no end, as in a job that runs."""
    random = scene.random()
    lines = [*beginning(random), *begins]
    for step in scene.steps:
        lines += between(random, step)
        lines += told(scene, step, random)
    return "\n".join(lines) + "\n"


def bar(done: int, total: int, passed: float, what: str = "") -> str:
    """tqdm's line, as it overwrites itself."""
    share = done / total
    rate = passed / max(done, 1)
    width = 10
    full = math.floor(share * width)
    head = f"{what}: " if what else ""
    return (
        f"\r{head}{share:4.0%}|{'█' * full:<{width}}| {done}/{total} "
        f"[{interval(passed)}<{interval(rate * (total - done))}, {rate:5.2f}s/it]"
    )


def interval(seconds: float) -> str:
    """As tqdm writes it."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:d}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"
