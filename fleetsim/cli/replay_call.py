"""The words of a `fleetsim replay` at hand, so that the commands which it recommends can repeat them."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim.cli.history_options import AccessFlags
from fleetsim.cli.replay_source import Source


def source_words(source: Source) -> tuple[str, ...]:
    """Where the history is from, which window of it, and how to get in; never a credential of the address."""
    return (
        *_address(source),
        *_pairs("--selector", source.selector),
        *_pairs("--start", source.start),
        *_pairs("--end", source.end),
        *(() if source.step == "auto" else ("--step", source.step)),
        *(word for name, metric in source.mapping.items() for word in ("--map", f"{name}={metric}")),
        *_pairs("--framework", source.framework),
        *_access(source.access),
    )


def known_words(scenario: str | None, preset: str | None, given: Sequence[str], profile: str | None) -> tuple[str, ...]:
    """What is known of the fleet beside its history."""
    return (
        *_pairs("--scenario", scenario),
        *_pairs("--preset", preset),
        *(word for fact in given for word in ("--given", fact)),
        *_pairs("--profile", profile),
    )


def verify_words(source: Source, plan: str) -> tuple[str, ...] | None:
    """The last hours of the same server, held against a plan; None for a file, which says nothing of later."""
    if source.prometheus is None:
        return None
    words = (*_address(source), *_pairs("--selector", source.selector), *_access(source.access))
    return ("fleetsim", "replay", *words, "--start", "-2h", "--verify", plan)


def _address(source: Source) -> tuple[str, ...]:
    if source.prometheus is None:
        return _pairs("--from", source.file)
    from fleetsim.history.access import address_of

    return ("--prometheus", address_of(source.prometheus)[0])


def _access(access: AccessFlags) -> tuple[str, ...]:
    """Names of files, never what is in them."""
    flags = (
        ("--token-file", access.token_file),
        ("--basic-auth-file", access.basic_auth_file),
        ("--org-id", access.org_id),
        ("--ca-file", access.ca_file),
        ("--client-cert", access.client_cert),
        ("--client-key", access.client_key),
    )
    words = tuple(word for flag, value in flags for word in _pairs(flag, value))
    late = () if access.timeout_s == AccessFlags().timeout_s else ("--timeout", f"{access.timeout_s:g}")
    return (*words, *(("--insecure-skip-verify",) if access.skip_verify else ()), *late)


def _pairs(flag: str, value: object) -> tuple[str, ...]:
    return (flag, str(value)) if value else ()
