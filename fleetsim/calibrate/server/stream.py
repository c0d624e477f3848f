"""Server-sent events of /v1/completions: bytes to chunks, chunks to tokens per choice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetsim.calibrate.server.play import Stream
from fleetsim.json_text import from_json

DONE = "[DONE]"
# Marks of a chunk in the middle of a response, as vLLM and SGLang write it. Inside JSON strings quotes are escaped, so
# none of them can be part of a generated text.
_INDEX, _GOES_ON, _RUNNING, _ERROR = b'"index":', b'"finish_reason":null', b'"completion_tokens":', b'"error"'
_LEADING = re.compile(rb"\d+")


class BrokenStreamError(Exception):
    """What came is no stream of completion chunks; the message says what it was."""


@dataclass(slots=True)
class EventReader:
    """Cuts bytes into the data of events. An event ends with an empty line; several data lines join with newlines."""

    rest: bytes = b""

    def plain(self, data: bytes) -> list[tuple[int, int]] | None:
        """Choice and its tokens so far, of whole chunks in the middle of a response; None for anything else.

        A short cut beside `feed`, ten times as fast: a client of a thousand streams has no time for JSON.
        """
        if self.rest or not data.endswith(b"\n\n"):
            return None
        found = []
        for event in data.split(b"\n\n")[:-1]:
            i, j = event.find(_INDEX), event.rfind(_RUNNING)
            if i < 0 or j < 0 or event.count(_INDEX) != 1 or _GOES_ON not in event or _ERROR in event:
                return None
            index, total = _LEADING.match(event, i + len(_INDEX)), _LEADING.match(event, j + len(_RUNNING))
            if index is None or total is None:
                return None
            found.append((int(index[0]), int(total[0])))
        return found

    def feed(self, data: bytes) -> list[str]:
        """The events that ended within these bytes."""
        *whole, self.rest = (self.rest + data).replace(b"\r\n", b"\n").split(b"\n\n")
        if len(self.rest) > 1 << 22:
            raise BrokenStreamError("4 MiB without the end of an event")
        return [e for e in map(_data_of, whole) if e is not None]


def _data_of(event: bytes) -> str | None:
    lines = event.strip(b"\n").split(b"\n")
    data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    if not data:
        if any(line and not line.startswith((b":", b"event:", b"id:", b"retry:")) for line in lines):
            raise BrokenStreamError(f"no server-sent event: {event[:60]!r}")
        return None
    try:
        return b"\n".join(data).decode()
    except UnicodeDecodeError:
        raise BrokenStreamError(f"an event that is not UTF-8: {event[:60]!r}") from None


def _record_of(data: str) -> dict[str, Any]:
    """The chunk in an event's data. Raises BrokenStreamError for an error that the server reports or what is none."""
    try:
        record: Any = from_json(data)
    except ValueError:
        raise BrokenStreamError(f"an event that is not JSON: {data[:60]!r}") from None
    if not isinstance(record, dict):
        raise BrokenStreamError(f"an event that is no JSON object: {data[:60]!r}")
    if record.get("error"):
        error = record["error"]
        raise BrokenStreamError(str(error.get("message") if isinstance(error, dict) else error)[:300])
    choices = record.get("choices")
    if not isinstance(choices, list):
        raise BrokenStreamError(f"an event without choices: {data[:60]!r}")
    if not all(isinstance(choice, dict) for choice in choices):
        raise BrokenStreamError(f"a choice that is no object: {data[:60]!r}")
    return record


def _tokens_of(choice: dict[str, Any], made: float, total: int | None) -> tuple[float | None, str]:
    """How many tokens of a choice a chunk brings, and what says so: its token ids, else its running usage, else its
    log-probs; a chunk is never taken for one token. made: before it. total: by the usage, with it."""
    ids, logprobs = choice.get("token_ids"), choice.get("logprobs")
    named = logprobs.get("tokens") if isinstance(logprobs, dict) else None
    if isinstance(ids, list):
        return float(len(ids)), "token_ids"
    if total is not None:
        return max(0.0, total - made), "usage"
    return (float(len(named)), "logprobs") if isinstance(named, list) else (None, "")


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


TRUSTED_AFTER = 2  # chunks of each choice whose running usage agreed with their own tokens


class Response:
    """Reads a response. streams: one per choice. done: its end has come. just_ended: choices that the last read ended.

    counted_by: how tokens were counted. usage_counts: whether each chunk's running usage counts its own choice (it
    does in vLLM and SGLang; a server that sums over the choices is recognised, and its usage is not used).
    """

    def __init__(self, streams: Sequence[Stream], tokens_per_chunk: float) -> None:
        self.streams = streams
        self.done, self.just_ended, self.counted_by = False, 0, ""
        self._reader, self._guess = EventReader(), tokens_per_chunk
        self._totals: dict[int, float] = {}
        self._final: int | None = None
        self._agreed: dict[int, int] = {}
        self._disagreed = False
        self.usage_counts = False

    def read(self, data: bytes) -> list[tuple[Stream, float]]:
        """Streams and their new tokens, of what one read brought. Raises BrokenStreamError."""
        self.just_ended = 0
        if self.usage_counts:
            plain = self._reader.plain(data)
            if plain is not None:
                return self._running(plain)
        found: list[tuple[Stream, float]] = []
        for event in self._reader.feed(data):
            if event == DONE:
                self.done = True
            else:
                self._chunk(event, found)
        return found

    def _running(self, plain: list[tuple[int, int]]) -> list[tuple[Stream, float]]:
        found = []
        for index, total in dict(plain).items():
            made = total - self._totals.get(index, 0.0)
            if index < len(self.streams) and made > 0:
                self._totals[index] = total
                found.append((self.streams[index], made))
        return found

    def _chunk(self, event: str, found: list[tuple[Stream, float]]) -> None:
        record = _record_of(event)
        choices, usage = record["choices"], record.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        completed, prompt = _count(usage.get("completion_tokens")), _count(usage.get("prompt_tokens"))
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
        if not choices and completed is not None:
            self._final = completed
        for s in self.streams if prompt is not None else ():
            s.prompt_tokens = prompt or 0
            s.cached_tokens = cached if s.cached_tokens is None else s.cached_tokens
        for choice in choices:
            index, reason = _count(choice.get("index")) or 0, choice.get("finish_reason")
            total = completed if len(choices) == 1 else None
            tokens, by = _tokens_of(choice, self._totals.get(index, 0.0), total)
            self.counted_by = by or self.counted_by
            if tokens is not None or choice.get("text") or reason:
                self._take(index, tokens, total, found)
            if reason:
                self.streams[index].ended = str(reason)
                self.just_ended += 1

    def _take(self, index: int, tokens: float | None, usage: int | None, found: list[tuple[Stream, float]]) -> None:
        """New tokens of a choice, None where the chunk does not say how many. usage: the running one."""
        if index >= len(self.streams):
            raise BrokenStreamError(f"choice {index} of {len(self.streams)}")
        s, total = self.streams[index], self._totals.get(index, 0.0)
        made = self._guess if tokens is None else tokens
        if tokens is not None and not s.exact:  # the sum at the end: how it came is not known
            self._final, made = round(total + tokens), self._guess
        s.exact = s.exact and tokens is not None
        if made > 0:
            self._totals[index] = total + made
            found.append((s, made))
        if tokens and usage == total + tokens:
            self._agreed[index] = self._agreed.get(index, 0) + 1
            proven = len(self._agreed) == len(self.streams) and min(self._agreed.values()) >= TRUSTED_AFTER
            self.usage_counts = proven and not self._disagreed
        elif tokens:
            self._disagreed, self.usage_counts = True, False

    def settle(self) -> None:
        """At the end: where chunks did not say how many tokens they held, the usage at the end does, spread evenly."""
        guessed = [s for s in self.streams if not s.exact]
        if not guessed:
            return
        if self._final is not None and len(guessed) == len(self.streams):
            made = sum(s.tokens for s in self.streams)
            for s in self.streams:
                s.spread(self._final * s.tokens / made if made else 0.0)
        elif self._final is None:
            for s in guessed:
                if s.ended == "length":
                    s.spread(s.ask.max_tokens)
