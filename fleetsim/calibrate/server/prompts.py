"""Prompts that mean nothing: token ids every vocabulary has, or plain words where a server takes only text."""

from __future__ import annotations

import numpy as np

# No server is sent an id that its vocabulary may lack: vLLM 0.32 without a tokenizer does not check ids, and an id
# beyond the embedding kills its engine.
LEAST_ID, PAST_ID = 16, 250
WORDS = """
the of and to in is it that for was on are with as his they be at one have this from or had by hot but some
what there we can out other were all your when up use word how said an each she which do their time if will
way about many then them would write like so these her long make thing see him two has look more day could go
come did my sound no most number who over know water than call first people may down side been now find any
new work part take get place made live where after back little only round man year came show every good me
give our under
""".split()  # noqa: SIM905 - a list of words is longer to read


class Prompts:
    """Prompts by key. nonce: of this session, so that no earlier session's prompts lie in the server's prefix cache.

    tokens_per_word: what the server counted, for text.
    """

    def __init__(self, nonce: int, text: bool = False, tokens_per_word: float = 1.0) -> None:
        self.nonce, self.text, self.tokens_per_word = nonce, text, tokens_per_word

    def prompt(self, key: int, tokens: int) -> list[int] | str:
        """A prompt of this many tokens (of about as many, for text)."""
        random = np.random.default_rng([self.nonce, key, tokens])
        if not self.text:
            ids: list[int] = random.integers(LEAST_ID, PAST_ID, tokens).tolist()
            return ids
        words = random.integers(0, len(WORDS), max(1, round(tokens / self.tokens_per_word)))
        return " ".join(WORDS[int(i)] for i in words)
