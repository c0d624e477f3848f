"""A Prometheus, or what speaks like it (Thanos, Mimir, VictoriaMetrics): queries whose answers are whole, or an error.

Around prometheus-api-client, of which only `custom_query` and `custom_query_range` are used. Added here: ranges in
chunks that the server accepts, merged on one grid; retries; a deadline; typed errors; warnings kept.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from threading import Event, Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from fleetsim.errors import OutsideError, Problem
from fleetsim.faces import text
from fleetsim.history.access import IS_IT_UP, Access, PrometheusError, Refusal, address_of
from fleetsim.history.history import Floats, SeriesData
from fleetsim.history.option_names import MAP, PROMETHEUS, SELECTOR, START, way_in
from fleetsim.history.window import shown
from fleetsim.records import replace

MAX_POINTS = 10_000  # of a series in one answer; Prometheus refuses more than 11,000
FIRST_POINTS = 2_000  # before we know how many series there are
MAX_SAMPLES = 400_000  # of all series in one answer: some 12 MB of JSON, 80 MB once parsed
MAX_WAIT_S = 30.0
GREETING_S = 10.0  # what a server may take for the least of questions
_AT_ONCE = 2  # questions of a window
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

Answer = TypeVar("Answer")


class Prometheus:
    """One server. url: address without credentials, as it may be shown. warnings: what it said about partial data."""

    def __init__(
        self,
        url: str,
        access: Access | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Contacts nothing yet. Raises InputError for an address that is none, OutsideError without the extra."""
        self.url, given = address_of(url)
        access = access or Access()
        if given is not None and access.token is None and access.user is None:
            access = replace(access, user=given[0], password=given[1], source="the address")
        self.access = access
        self._sleep, self._jitter = sleep, jitter
        self._session, self._client = self._connect()

    def __repr__(self) -> str:
        return f"Prometheus({self.url!r})"

    def _connect(self) -> tuple[Any, Any]:
        try:
            import requests
            from prometheus_api_client import PrometheusConnect
            from urllib3.util import Retry

            from fleetsim.history.session import Session, bearer
        except ImportError as error:
            remedy = "pip install 'fleetsim[prometheus]'"
            raise OutsideError(f"reading a Prometheus needs {error.name}, which is not installed; {remedy}") from None
        auth: Any = None
        if self.access.token is not None:
            auth = bearer(self.access.token)
        elif self.access.user is not None:
            auth = requests.auth.HTTPBasicAuth(self.access.user, self.access.password or "")
        session = Session(self.access)
        if urlsplit(self.url).hostname in _LOOPBACK:
            session.headers["Accept-Encoding"] = "identity"  # to compress takes a server longer than all the rest
        client = PrometheusConnect(
            url=self.url, headers=dict(self.access.headers), auth=auth, session=session, retry=Retry(0, read=False)
        )
        return session, client

    @property
    def warnings(self) -> tuple[str, ...]:
        """What answers so far said about themselves, each text once: partial data above all."""
        return tuple(self._session.warnings)

    @property
    def clock_ahead_s(self) -> float | None:
        """By how many seconds the server's clock is ahead of this machine's, to about one; None before any answer."""
        ahead: float | None = self._session.server_ahead_s
        return ahead

    def close(self) -> None:
        """Closes its connections."""
        self._session.close()

    def about(self) -> dict[str, str]:
        """What the server says of itself, where it does: `version` and `retention`. Never raises."""
        said = {
            "version": self._status("buildinfo").get("version"),
            "retention": self._status("runtimeinfo").get("storageRetention"),
        }
        return {key: value for key, value in said.items() if isinstance(value, str) and value}

    def _status(self, name: str) -> dict[str, Any]:
        """`data` of /api/v1/status/NAME, empty where there is none: VictoriaMetrics and Mimir know other pages."""
        url, headers = f"{self.url}/api/v1/status/{name}", dict(self.access.headers)
        page = self._session.page(url, headers=headers, auth=self._client.auth)
        data = page.get("data") if isinstance(page, dict) else None
        return data if isinstance(data, dict) else {}

    def query(self, expr: str, at_s: float) -> list[SeriesData]:
        """The value of an expression at one time: one point per series, or the raw samples of `metric[5m]`.

        No series is empty. Raises PrometheusError.
        """
        params = {"time": f"{at_s:.3f}", **self._params()}
        deadline = time.monotonic() + self.access.deadline_s
        found = self._ask(lambda: self._client.custom_query(expr, params=params), deadline)
        return [series for series in found if series.values.size]

    def query_range(self, expr: str, start_s: float, end_s: float, step_s: float) -> list[SeriesData]:
        """An expression at start_s, start_s + step_s, ... up to end_s: every series on that whole grid.

        Read in as many requests as the server's limits ask for; a chunk that it finds too large is halved. Raises
        PrometheusError.
        """
        count = int(np.floor((end_s - start_s) / step_s + 1e-6)) + 1
        if count < 1:
            return []
        grid: Floats = start_s + step_s * np.arange(count, dtype=np.float64)
        deadline = time.monotonic() + self.access.deadline_s
        merged: dict[tuple[tuple[str, str], ...], Floats] = {}
        size, most, first = FIRST_POINTS, MAX_POINTS, 0
        while first < count:
            last = min(first + size, count) - 1
            try:
                result = self._range(expr, float(grid[first]), float(grid[last]), step_s, deadline)
            except PrometheusError as error:
                smaller = error.kind == "too_large" or (error.kind == "timeout" and self._session.answered)
                if not smaller or last == first or time.monotonic() > deadline:
                    raise
                size = most = (last - first + 1) // 2
                continue
            place(result, merged, grid, first, last, step_s)
            size = min(most, max(MAX_SAMPLES // max(len(result), 1), 16))
            first = last + 1
        return [SeriesData(dict(labels), grid, values) for labels, values in merged.items()]

    @staticmethod
    def several(questions: Sequence[Callable[[], Answer]], asking: Callable[[int], object]) -> list[Answer]:
        """What some questions give, in their order. Two are asked at a time: the server works at one while the answer
        to the other is read. asking: told the number of each that is waited for. Raises what the first that fails
        raises; whatever is under way then ends by itself."""
        found: list[Future[Answer]] = [Future() for _ in questions]
        waiting, over = iter(range(len(questions))), Event()

        def work() -> None:
            while not over.is_set() and (i := next(waiting, None)) is not None:
                try:
                    found[i].set_result(questions[i]())
                except BaseException as error:  # noqa: BLE001 - it is raised where the answer is waited for
                    found[i].set_exception(error)

        for _ in range(min(_AT_ONCE, len(questions))):
            Thread(target=work, daemon=True).start()  # nobody who is interrupted waits for it
        answers = []
        try:
            for i, answer in enumerate(found):
                asking(i)
                answers.append(answer.result())
        finally:
            over.set()
        return answers

    def _range(self, expr: str, start_s: float, end_s: float, step_s: float, deadline: float) -> list[SeriesData]:
        # The library rounds times to whole seconds; what stands in params wins over them.
        params = {"start": f"{start_s:.3f}", "end": f"{end_s:.3f}", **self._params()}
        ends = datetime.fromtimestamp(start_s, UTC), datetime.fromtimestamp(end_s, UTC)
        return self._ask(
            lambda: self._client.custom_query_range(expr, *ends, step=f"{step_s:.3f}", params=params), deadline
        )

    def _greet(self, silence: Refusal) -> None:
        """Asks the least, of a server that has answered nothing yet: silent to this as well it is down, and smaller
        questions would wait in vain. silence: what it did not answer. Raises PrometheusError."""
        try:
            with self._session.patience(GREETING_S):
                self._client.custom_query("vector(1)", params={"time": f"{time.time():.3f}", **self._params()})
        except Refusal as refusal:
            if refusal.kind in ("timeout", "unreachable"):
                rule = f"{silence.rule}, nor the simplest query within {min(GREETING_S, self.access.timeout_s):g} s"
                remedy = text("{} If it is slow, give more {}", IS_IT_UP, way_in("timeout"))
                raise self._error(Refusal("timeout", rule, remedy), 1) from None
            self._session.answered = True

    def _params(self) -> dict[str, str]:
        # timeout: a query that nobody waits for any longer should stop. nocache: VictoriaMetrics otherwise moves the
        # ends of a range to multiples of its step; the others do not know the word.
        return {"timeout": f"{self.access.timeout_s:g}s", "nocache": "1"}

    def _ask(self, send: Callable[[], list[SeriesData]], deadline: float) -> list[SeriesData]:
        """One request, tried again while that may help. Raises PrometheusError."""
        self._session.deadline = deadline
        attempt = 0
        while True:
            attempt += 1
            try:
                return send()
            except Refusal as refusal:
                tries = self.access.tries
                if refusal.kind == "timeout" and not self._session.answered:
                    self._greet(refusal)
                if refusal.kind == "timeout" or (refusal.kind == "unreachable" and not self._session.answered):
                    tries = min(tries, 2)  # a wrong address should not take half a minute to be called wrong
                wait_s = min(0.5 * 2 ** (attempt - 1), MAX_WAIT_S) * (0.5 + self._jitter())
                if refusal.wait_s is not None:
                    wait_s = max(refusal.wait_s, 0.1)
                left_s = deadline - time.monotonic()
                if not refusal.again or attempt >= tries or wait_s > left_s:
                    raise self._error(refusal, attempt) from None
                self._sleep(wait_s)

    def _error(self, refusal: Refusal, attempt: int) -> PrometheusError:
        rule = refusal.rule + (f", {attempt} times" if attempt > 1 else "")
        if refusal.wait_s is not None and refusal.again:
            rule += f", and asks to wait {refusal.wait_s:.0f} s"
        return PrometheusError(refusal.kind, Problem(PROMETHEUS, self.url, rule, refusal.remedy))


def place(
    result: list[SeriesData],
    merged: dict[tuple[tuple[str, str], ...], Floats],
    grid: Floats,
    first: int,
    last: int,
    step_s: float,
) -> None:
    """Puts the samples of one chunk (grid times first to last) into the rows of its series; of two for one time the
    later in the answer counts. What lies outside the chunk belongs to another one and is left to it."""
    for data in result:
        key = tuple(sorted(data.labels.items()))
        row = merged.get(key)
        if row is None:
            row = merged[key] = np.full(len(grid), np.nan)
        index = np.rint((data.times - grid[0]) / step_s)
        inside = (index >= first) & (index <= last)
        row[index[inside].astype(np.intp)] = data.values[inside]


# ------------------------------------------------------------------------------------ what it has of a window

LOOKS = 60  # times at which a window is looked at; up to 5 h that leaves no time unseen, as Prometheus looks back 5 min
LOOKBACK_S = 300.0
SEARCH_S = 30 * 86_400.0


def select(name: str, selector: str) -> str:
    """PromQL: the series of one metric that a selector matches."""
    return f"{name}{{{selector}}}" if selector else name


def any_of(names: Iterable[str], selector: str) -> str:
    """PromQL: the series of any of these metrics that a selector matches."""
    matchers = [f'__name__=~"{"|".join(names)}"', *([selector] if selector else [])]
    return f"{{{','.join(matchers)}}}"


def nothing(prometheus: Prometheus, names: Sequence[str], selector: str, start_s: float, end_s: float) -> Problem:
    """Why a window is empty, as far as Prometheus tells: what was asked, what is there instead, what to do."""
    asked = f"{shown(start_s)} to {shown(end_s)}" + (f", {{{selector}}}" if selector else "")
    path = SELECTOR if selector else START
    if selector:
        try:
            jobs = sorted(
                f'job="{one.labels.get("job", "")}" ({np.max(np.nan_to_num(one.values), initial=0.0):.0f} series)'
                for one in prometheus.query_range(
                    f"count by (job) ({any_of(names, '')})", start_s, end_s, max((end_s - start_s) / LOOKS, 1.0)
                )
            )
        except PrometheusError:
            jobs = []
        if jobs:
            rule = f"matches no metric that fleetsim knows; without it the window has {', '.join(jobs[:8])}"
            return Problem(path, asked, rule, text("narrow to one of these, or leave {} out", SELECTOR))
    seen = _seen(prometheus, [n for n in names if not n.endswith("_bucket")], selector, end_s)
    if seen is not None:
        rule = f"holds no metric that fleetsim knows; the last 30 days have them from {seen[0]} to {seen[1]}"
        return Problem(START, asked, rule, "give a window inside that")
    return Problem(path, asked, f"holds no metric that fleetsim knows{_targets(prometheus, selector, end_s)}", _OTHERS)


_OTHERS = text(
    "do the engines expose metrics, and does this Prometheus scrape them? docs/metrics.md lists the names; {}", MAP
)


def _seen(prometheus: Prometheus, names: Sequence[str], selector: str, end_s: float) -> tuple[str, str] | None:
    """When the last 30 days had data first and last, to 5 minutes."""
    span_s, wanted = 6 * 3600.0, any_of(names[:2], selector)

    def when(expr: str, first_s: float, last_s: float, step_s: float) -> Floats:
        series = prometheus.query_range(expr, first_s, last_s, step_s)
        return np.concatenate([np.empty(0), *(one.times[np.isfinite(one.values)] for one in series)])

    try:
        rough = when(f"count(last_over_time({wanted}[6h]))", end_s - SEARCH_S, end_s + span_s, span_s)
        if not rough.size:
            return None
        first = when(f"count({wanted})", rough.min() - span_s, rough.min(), LOOKBACK_S)
        last = when(f"count({wanted})", rough.max() - span_s, rough.max(), LOOKBACK_S)
    except PrometheusError:
        return None
    return shown(float(min(first, default=rough.min()))), shown(float(max(last, default=rough.max())))


def _targets(prometheus: Prometheus, selector: str, end_s: float) -> str:
    try:
        series = prometheus.query(f"count({select('up', selector)})", end_s)
    except PrometheusError:
        return ""
    if not series or not series[0].values.size:
        return "; no scrape target matches either"
    return f"; {series[0].values[-1]:.0f} scrape targets were there at its end"
