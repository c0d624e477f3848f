"""What of the catalogue a window has: engines' metrics, the trainer's, and how each is scraped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fleetsim.dataclass import dataclass
from fleetsim.errors import InputError
from fleetsim.history import discovery
from fleetsim.history.catalogue import REPLICA_LABELS, SignalMetrics
from fleetsim.history.history import Note
from fleetsim.history.map_option import METRIC
from fleetsim.history.prometheus import Prometheus

Spans = dict[str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Present:
    """spans: name of a metric -> when it was first and last seen; selectors: name -> matchers to read it with. scrapes,
    trainer_scrapes: their rhythm, None where it cannot be seen. first: an engine's metric, or else one of the trainer.
    """

    spans: Mapping[str, tuple[float, float]]
    selectors: Mapping[str, str]
    first: str | None
    scrapes: discovery.Scrapes | None
    trainer_scrapes: discovery.Scrapes | None
    notes: tuple[Note, ...]


def present(
    prometheus: Prometheus,
    asked: Sequence[SignalMetrics],
    mapping: Mapping[str, str],
    selector: str,
    start_s: float,
    end_s: float,
) -> Present:
    """Looks the catalogue's metrics up. Raises PrometheusError, and InputError if neither one of them is there nor any
    signal is mapped."""
    known = [one for one in asked if one.signal.name not in mapping]
    names = _names(one for one in known if one.signal.scope == "instance")
    engines = discovery.found(prometheus, names, selector, start_s, end_s)
    trainer_names = _names(one for one in known if one.signal.scope == "fleet")
    trainer, trainer_selector = discovery.found(prometheus, trainer_names, selector, start_s, end_s), selector
    notes: list[Note] = []
    if not engines and not trainer and not mapping:
        raise InputError([discovery.nothing(prometheus, names, selector, start_s, end_s)])
    if not engines and not any(one.signal.scope == "instance" for one in asked if one.signal.name in mapping):
        notes.append(Note("missing", f"No engine metric in this window{f' for {{{selector}}}' if selector else ''}."))
    if not trainer and selector:
        trainer, told = _only_trainer(prometheus, trainer_names, start_s, end_s)
        notes += told
        trainer_selector = ""
    scrapes = _rhythm(prometheus, engines, selector, end_s)
    trainer_scrapes = _rhythm(prometheus, trainer, trainer_selector, end_s)
    for expr in mapping.values():
        if scrapes is None and trainer_scrapes is None and METRIC.fullmatch(expr):
            scrapes = discovery.scrapes(prometheus, expr, "", end_s)
    return Present(
        spans={**engines, **trainer},
        selectors={**dict.fromkeys(engines, selector), **dict.fromkeys(trainer, trainer_selector)},
        first=next(iter([*engines, *trainer]), None),
        scrapes=scrapes or trainer_scrapes,
        trainer_scrapes=trainer_scrapes or scrapes,
        notes=tuple(notes),
    )


def _names(asked: Iterable[SignalMetrics]) -> list[str]:
    """Names by which the metrics of these signals are looked up: of a histogram its buckets."""
    every = (name for one in asked for name in one.sample_names() if not name.endswith("_sum"))
    return list(dict.fromkeys(every))


def _rhythm(prometheus: Prometheus, spans: Spans, selector: str, end_s: float) -> discovery.Scrapes | None:
    if not spans:
        return None
    name, (_, last_s) = next(iter(spans.items()))
    return discovery.scrapes(prometheus, name, selector, min(last_s + discovery.LOOKBACK_S, end_s))


def _only_trainer(
    prometheus: Prometheus, names: Sequence[str], start_s: float, end_s: float
) -> tuple[Spans, list[Note]]:
    """The trainer's metrics without the selector, which is mostly meant for the engines: if there is only one."""
    spans = discovery.found(prometheus, names, "", start_s, end_s)
    if not spans:
        return {}, []
    name = next(iter(spans))
    series = prometheus.query_range(name, start_s, end_s, max((end_s - start_s) / discovery.LOOKS, 1.0))
    jobs = sorted({one.labels.get("job", "") for one in series})
    who = {tuple(sorted((k, v) for k, v in one.labels.items() if k not in REPLICA_LABELS)) for one in series}
    if len(who) == 1:
        text = f'The selector matches no trainer metric; the only trainer there is (job="{jobs[0]}") was read.'
        return spans, [Note("other", text)]
    text = (
        f"The selector matches no trainer metric, and without it there are {len(who)} ({name}, jobs: "
        f"{', '.join(jobs[:5])}); none was read. Choose one with a selector that matches engines and trainer, or --map."
    )
    return {}, [Note("missing", text)]
