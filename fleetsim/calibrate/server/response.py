"""One response as it comes in: bytes to tokens of its streams, counted as the server allows."""

from __future__ import annotations

from collections.abc import Sequence

from fleetsim.calibrate.server.events import DONE, BrokenStreamError, EventReader, chunk_of
from fleetsim.calibrate.server.play import Stream

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
        chunk = chunk_of(event, self._totals)
        self.counted_by = chunk.counted_by or self.counted_by
        if chunk.completion_tokens is not None:
            self._final = chunk.completion_tokens
        if chunk.prompt_tokens is not None:
            for s in self.streams:
                s.prompt_tokens = chunk.prompt_tokens
                s.cached_tokens = chunk.cached_tokens if s.cached_tokens is None else s.cached_tokens
        for index, tokens in chunk.tokens.items():
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
            if tokens and chunk.usage_of_choice == total + tokens:
                self._agreed[index] = self._agreed.get(index, 0) + 1
                proven = len(self._agreed) == len(self.streams) and min(self._agreed.values()) >= TRUSTED_AFTER
                self.usage_counts = proven and not self._disagreed
            elif tokens:
                self._disagreed, self.usage_counts = True, False
        for index, reason in chunk.ended.items():
            if index < len(self.streams):
                self.streams[index].ended = reason
                self.just_ended += 1

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
