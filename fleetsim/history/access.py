"""How a Prometheus is reached (address, credentials, TLS, patience), and how it can refuse: one error, exit code 3.

Secrets are kept out of every text and repr.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.faces import text
from fleetsim.history.option_names import CREDENTIALS, MAP, PROMETHEUS, SELECTOR, STEP, way_in
from fleetsim.records import replace

TOKEN, USER, PASSWORD = "FLEETSIM_PROMETHEUS_TOKEN", "FLEETSIM_PROMETHEUS_USER", "FLEETSIM_PROMETHEUS_PASSWORD"
HOW = text("set {}, or {} and {}, or give {}", TOKEN, USER, PASSWORD, CREDENTIALS)

_PAGES = ("/api/v1/query_range", "/api/v1/query", "/api/v1", "/graph", "/query", "/targets", "/alerts")


@dataclass(frozen=True, slots=True)
class Access:
    """Options of one Prometheus.

    token: bearer token. user, password: basic authentication. headers: sent with every request (X-Scope-OrgID of Mimir
    and Loki's kin). source: where the credentials come from, in words. ca_file, client_cert, client_key, skip_verify:
    TLS. timeout_s: for one answer; deadline_s: for one query with all its chunks and retries; tries: of one request.
    """

    token: str | None = field(default=None, repr=False)
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    source: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    skip_verify: bool = False
    timeout_s: float = 60.0
    deadline_s: float = 600.0
    tries: int = 7

    def secrets(self) -> tuple[str, ...]:
        """What must never be shown: for taking it out of what a server says."""
        found = [self.token, self.password, *self.headers.values()]
        if self.password is not None:
            found.append(base64.b64encode(f"{self.user}:{self.password}".encode()).decode())
        return tuple(sorted((s for s in found if s and len(s) > 3), key=len, reverse=True))

    def hide(self, text: str) -> str:
        """The text without the secrets."""
        for secret in self.secrets():
            text = text.replace(secret, "***")
        return text


def address_of(url: str) -> tuple[str, tuple[str, str] | None]:
    """The address without credentials, and (user, password) if the URL held them.

    A path prefix stays (Mimir's /prometheus, VictoriaMetrics' /select/0/prometheus); the path of a page or of the API
    is taken off, with what stands behind its question mark. Raises InputError for what is no http(s) URL, and for an
    address with a query, which could not be kept; its text never shows credentials.
    """

    def refuse(value: str, rule: str, remedy: str) -> InputError:
        return InputError([Problem(PROMETHEUS, value, rule, remedy)])

    given = url.strip()
    try:
        parts = urlsplit(given)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise refuse(_without_userinfo(given), "is no URL", "for example http://localhost:9090") from None
    shown = _without_userinfo(given)
    if parts.scheme not in ("http", "https"):
        example = shown if "//" not in shown else "localhost:9090"
        raise refuse(shown, "must begin with http:// or https://", f"for example http://{example}")
    if not host or any(c.isspace() or not c.isprintable() for c in given):
        raise refuse(shown, "names no host", "for example http://localhost:9090")
    bare = parts.path.rstrip("/")
    if parts.query and not bare.endswith(_PAGES):  # of a page it is what the browser shows
        remedy = text(
            "give the address alone; a credential goes into {}, a tenant into {}",
            way_in("token-file"),
            way_in("org-id"),
        )
        raise refuse(shown, "has a query (?...), which would not be sent with the requests", remedy)
    for page in _PAGES:
        bare = bare.removesuffix(page)
    named = f"[{host}]" if ":" in host else host
    clean = f"{parts.scheme}://{named}{f':{port}' if port is not None else ''}{bare.rstrip('/')}"
    if parts.username is None:
        return clean, None
    return clean, (unquote(parts.username), unquote(parts.password or ""))


def access_from(
    *,
    token_file: Path | None = None,
    basic_auth_file: Path | None = None,
    org_id: str | None = None,
    headers: Mapping[str, str] | None = None,
    ca_file: Path | None = None,
    client_cert: Path | None = None,
    client_key: Path | None = None,
    skip_verify: bool = False,
    timeout_s: float = 60.0,
    env: Mapping[str, str] | None = None,
) -> Access:
    """Options from flags, files and the environment: a file given by flag wins over the environment.

    token_file holds the bearer token, basic_auth_file one line user:password. Raises InputError, all problems at once.
    """
    env = os.environ if env is None else env
    problems: list[Problem] = []
    access = Access(
        headers={**(headers or {}), **({"X-Scope-OrgID": org_id} if org_id else {})},
        ca_file=_there(ca_file, "ca-file", problems),
        client_cert=_there(client_cert, "client-cert", problems),
        client_key=_there(client_key, "client-key", problems),
        skip_verify=skip_verify,
        timeout_s=timeout_s,
    )
    if client_key is not None and client_cert is None:
        remedy = text("add {}", way_in("client-cert"))
        problems.append(Problem(way_in("client-key"), str(client_key), "a key without its certificate", remedy))
    if not timeout_s > 0:
        problems.append(Problem(way_in("timeout"), timeout_s, "must be above 0", "give seconds, for example 60"))
    if token_file is not None and basic_auth_file is not None:
        rule = "a bearer token and basic authentication exclude each other"
        problems.append(Problem(way_in("token-file"), str(token_file), rule, "give one of them"))
    elif token_file is not None:
        access = replace(access, token=_secret(token_file, "token-file", problems), source="--token-file")
    elif basic_auth_file is not None:
        user, colon, password = _secret(basic_auth_file, "basic-auth-file", problems).partition(":")
        if not colon and not problems:
            rule = "must hold one line, user:password"
            problems.append(
                Problem(way_in("basic-auth-file"), str(basic_auth_file), rule, "put a colon between the two")
            )
        access = replace(access, user=user, password=password, source="--basic-auth-file")
    elif token := env.get(TOKEN, "").strip():
        access = replace(access, token=token, source=TOKEN)
    elif user := env.get(USER, "").strip():
        access = replace(access, user=user, password=env.get(PASSWORD, ""), source=f"{USER} and {PASSWORD}")
    for what, value in ((access.source, access.token), *((f"header {k}", v) for k, v in access.headers.items())):
        if value and any(not 31 < ord(c) < 127 for c in value):
            problems.append(Problem(str(what), "(not shown)", "must be printable ASCII on one line", "check its text"))
    if problems:
        raise InputError(problems)
    return access


def _without_userinfo(text: str) -> str:
    scheme, slashes, rest = text.partition("//")
    if not slashes:
        return text.rpartition("@")[2].partition("?")[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}//{host.rpartition('@')[2].partition('?')[0]}{slash}{path.partition('?')[0]}"


def _there(path: Path | None, option: str, problems: list[Problem]) -> str | None:
    if path is None:
        return None
    if not path.is_file():
        problems.append(Problem(way_in(option), str(path), "no such file", "check the path"))
    return str(path)


def _secret(path: Path, option: str, problems: list[Problem]) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        problems.append(
            Problem(way_in(option), str(path), f"cannot be read: {why}", "check the path and its permissions")
        )
        return ""
    if not text:
        problems.append(Problem(way_in(option), str(path), "is empty", "put the secret into it"))
    return text


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
    """Prometheus did not answer as asked. Kind and problem stand in `args`, which Python's faces put in other words."""

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
