"""What can go wrong between us and a Prometheus, as one typed error: value, rule, remedy; exit code 3."""

from __future__ import annotations

import re
from typing import Literal

from fleetsim.errors import OutsideError, Problem
from fleetsim.faces import text
from fleetsim.history.access import HOW, Access
from fleetsim.history.option_names import MAP, SELECTOR, STEP

IS_IT_UP = "is it running, and is the address right?"

Kind = Literal["unreachable", "tls", "denied", "refused", "busy", "broken", "timeout", "too_large"]

TOO_LARGE = re.compile(
    r"exceeded maximum resolution|too many samples|too many points|maxSamplesPerQuery|maxSeries|max(imum)? number of "
    r"(chunks|series|samples|points)|max-(chunks|fetched|series|samples|estimated)|exceeds? (the )?(limit|maximum)|"
    r"exceeded (the )?(series|chunks|samples|bytes)|timed out in|query timeout|response size",
    re.IGNORECASE,
)
"""What Prometheus, Thanos, Mimir and VictoriaMetrics say when a query is too large in one piece."""


class PrometheusError(OutsideError):
    """Prometheus did not answer as asked."""

    def __init__(self, kind: Kind, problem: Problem) -> None:
        super().__init__(kind, problem)

    @property
    def kind(self) -> Kind:
        """What went wrong."""
        kind: Kind = self.args[0]
        return kind

    @property
    def problem(self) -> Problem:
        """Value, rule, remedy."""
        problem: Problem = self.args[1]
        return problem

    def __str__(self) -> str:
        return str(self.problem)


class Refusal(Exception):  # noqa: N818 - passed inside the client only, never seen by a user
    """One request that failed. again: whether another try may help; wait_s: what the server asks us to wait."""

    def __init__(self, kind: Kind, rule: str, remedy: str, *, again: bool = False, wait_s: float | None = None) -> None:
        self.kind, self.rule, self.remedy, self.again, self.wait_s = kind, rule, remedy, again, wait_s
        super().__init__(rule)


def of_status(status: int, said: str, location: str, wait_s: float | None, access: Access) -> Refusal:
    """The refusal that an HTTP status other than 200 means. said: the server's own message, secrets taken out."""
    words = f": {said}" if said else ""
    remedy: str
    if status == 413 or (status in (400, 422, 500, 503) and TOO_LARGE.search(said)):
        remedy = text("shorten the window, narrow {}, or give a larger {}", SELECTOR, STEP)
        return Refusal("too_large", f"Prometheus finds the query too large ({status}{words})", remedy)
    if status in (401, 407):
        if access.source:
            return Refusal(
                "denied",
                f"refused the credentials from {access.source} ({status}{words})",
                text("check them, or {}", HOW),
            )
        return Refusal("denied", f"wants credentials ({status}{words})", HOW)
    if status == 403:
        whose = f"the credentials from {access.source}" if access.source else "a request without credentials"
        return Refusal(
            "denied", f"does not let {whose} read this ({status}{words})", text("ask for access, or {}", HOW)
        )
    if 300 <= status < 400:
        remedy = text("give the address it redirects to{}, or, if that is a login page, credentials: {}", location, HOW)
        return Refusal("refused", f"redirects ({status}) and is not followed", remedy)
    if status == 404:
        remedy = "is the path prefix right? Mimir has /prometheus, VictoriaMetrics' cluster /select/0/prometheus"
        return Refusal("refused", f"has no Prometheus API there (404{words})", remedy)
    if status in (400, 422):
        return Refusal("refused", f"refused the query ({status}{words})", text("mend {} or {}", SELECTOR, MAP))
    if status in (408, 425, 429, 500, 502, 503, 504):
        remedy = "it is overloaded or starting; try again later, or with a shorter window"
        return Refusal("busy", f"answered {status}{words}", remedy, again=status != 500, wait_s=wait_s)
    return Refusal("refused", f"answered {status}{words}", "is this the address of a Prometheus?")
