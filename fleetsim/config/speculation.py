"""The `engine.speculation` section: speculative decoding in vLLM's words, and how often its drafts are accepted."""

from itertools import pairwise
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from fleetsim.config.base import ConfigSection, Count, CountOrZero, ModelName, Name

# A batch size that none reaches: drafts are made at any.
MOST_SEQUENCES = 10**9

Method = Literal["mtp", "eagle3", "draft_model", "ngram", "suffix"]
METHODS: dict[Method, str] = {
    "mtp": "MTP",
    "eagle3": "EAGLE-3",
    "draft_model": "draft model",
    "ngram": "n-gram",
    "suffix": "suffix decoding",
}

Drafts = Annotated[int, Field(ge=1, le=64)]
DraftsOrNone = Annotated[int, Field(ge=0, le=64)]
Share = Annotated[float, Field(ge=0, le=1)]
# A list in YAML; here a tuple, for scenarios are looked up by their values.
Shares = Annotated[tuple[Share, ...], Field(strict=False, min_length=1, max_length=64)]
Range = Annotated[tuple[CountOrZero, CountOrZero, CountOrZero], Field(strict=False)]
Ranges = Annotated[tuple[Range, ...], Field(strict=False, min_length=1, max_length=1000)]


class SpeculationConfig(ConfigSection):
    """Speculative decoding. One of acceptance, acceptance_length and curve may be given; else a published curve of the
    method is taken, and the answer says so."""

    method: Method = Field(
        description="what drafts: the model's own MTP layer, an EAGLE-3 head, a small model, or the text so far"
    )
    num_speculative_tokens: DraftsOrNone = Field(
        default=3,
        description="k: tokens drafted for each sequence in an iteration (SGLang: speculative_num_steps); 0 = none, "
        "even where the profile is of an engine that drafted",
    )
    num_draft_tokens: Annotated[int, Field(ge=2, le=65)] | None = Field(
        default=None,
        description="tokens verified for each sequence, where a tree is (SGLang: speculative_num_draft_tokens); null = "
        "k + 1",
    )
    num_speculative_tokens_per_batch_size: Ranges | None = Field(
        default=None, description="k by running sequences: [first, last, k] in ascending ranges, none outside of them"
    )
    off_above_batch: Count | None = Field(
        default=None, description="nothing is drafted while more sequences run (disable_by_batch_size); null = always"
    )
    acceptance: Share | Shares | None = Field(
        default=None,
        description="share of the drafts that is accepted: by position (of all drafts, so falling), or one number, of "
        "each token whose predecessors were accepted",
    )
    acceptance_length: Annotated[float, Field(ge=1, le=65)] | None = Field(
        default=None, description="tokens that an iteration brings of each sequence, measured with k drafts"
    )
    curve: Name | None = Field(default=None, description="a published curve of acceptance lengths, by its name")
    decay_per_version: Share = Field(
        default=0.0,
        description="share of its acceptance that a drafter loses with each weight version; 0 = it is trained along",
    )
    redrafted_every: Count | None = Field(
        default=None, description="versions after which the drafter is as good as new; null = it is never trained again"
    )
    draft_model: ModelName | None = Field(
        default=None,
        description="method draft_model: Hugging Face id, or path of a config.json, from the scenario's folder too",
    )
    draft_s: Annotated[float, Field(ge=0, le=10)] | None = Field(
        default=None, description="seconds that drafting one token for all sequences takes; null = from the operators"
    )

    @field_validator("acceptance", mode="before")
    @classmethod
    def _tuple(cls, given: object) -> object:
        """A list becomes a tuple here: pydantic 2.10 does not do it beside a number."""
        return tuple(given) if isinstance(given, list) else given

    @field_validator("acceptance")
    @classmethod
    def _falling(cls, given: float | tuple[float, ...] | None) -> float | tuple[float, ...] | None:
        """A draft is accepted up to its first refusal, so later tokens are never accepted more often."""
        if isinstance(given, tuple) and any(b > a for a, b in pairwise(given)):
            raise ValueError("must be shares by position, each at most the one before: later drafts need the earlier")
        return given

    @field_validator("num_speculative_tokens_per_batch_size")
    @classmethod
    def _ascending(cls, given: tuple[tuple[int, int, int], ...] | None) -> tuple[tuple[int, int, int], ...] | None:
        """Ranges that overlap would give two answers."""
        before = 0
        for first, last, k in given or ():
            if not before < first <= last or k > 64:
                raise ValueError("must be ranges [first, last, k] that ascend and do not overlap, k at most 64")
            before = last
        return given

    @model_validator(mode="after")
    def _one_acceptance(self) -> Self:
        given = [n for n in ("acceptance", "acceptance_length", "curve") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} both say what is accepted: give one of them")
        if self.acceptance_length is not None and self.acceptance_length > self.num_speculative_tokens + 1:
            raise ValueError(
                f"acceptance_length {self.acceptance_length:g} is more than the {self.num_speculative_tokens + 1} "
                "tokens that an iteration can bring: give the k it was measured with as num_speculative_tokens"
            )
        return self

    @property
    def schedule(self) -> tuple[tuple[int, int], ...]:
        """(most sequences, k), ascending; beyond the last nothing is drafted."""
        most = self.off_above_batch or MOST_SEQUENCES
        ranges = self.num_speculative_tokens_per_batch_size
        if ranges is None:
            return ((most, self.num_speculative_tokens),)
        found: list[tuple[int, int]] = []
        for first, last, k in ranges:
            if first > 1 and (not found or found[-1][0] < first - 1):
                found.append((first - 1, 0))
            found.append((last, k))
        return tuple((min(n, most), k) for i, (n, k) in enumerate(found) if i == 0 or found[i - 1][0] < most)


# --- Published acceptance lengths of drafts, and what stands in where a scenario says nothing of acceptance.

_SPEED_BENCH = "SemiAnalysisAI/InferenceX at 843c625, golden_al_distribution/{}: SPEED-Bench coding, thinking on"


class AcceptanceCurve(NamedTuple):
    """Measured acceptance lengths for k = 1, 2, ..., how it drafts, and who published them."""

    lengths: tuple[float, ...]
    method: str
    source: str


def _speed_bench(method: str, file: str, *lengths: float) -> AcceptanceCurve:
    return AcceptanceCurve(lengths, method, _SPEED_BENCH.format(file))


CURVES: dict[str, AcceptanceCurve] = {
    "skyrl-qwen3.5-9b-mtp": AcceptanceCurve(
        (1.886, 2.656, 3.319), "mtp", "NovaSky-AI/SkyRL at 0071a0f, docs/content/docs/examples/spec_decode.mdx: DAPO"
    ),
    "qwen3.5-397b-mtp": _speed_bench("mtp", "qwen3.5_mtp.yaml", 1.93, 2.73, 3.39, 3.97, 4.41, 4.80, 5.04, 5.21),
    "qwen3-32b-draft-1.7b": AcceptanceCurve(
        (1.75, 2.32, 2.77),
        "draft_model",
        "vllm-project/vllm pull request 43091: Qwen3-1.7B drafts for Qwen3-32B, MT-Bench, temperature 0; 0.75, 0.57 "
        "and 0.45 of the drafts by position",
    ),
    "glm-5.2-mtp": _speed_bench("mtp", "glm5.2_mtp.yaml", 1.84, 2.50, 2.99, 3.33, 3.61, 3.78, 3.91, 4.06),
    "deepseek-v4-mtp": _speed_bench("mtp", "dsv4_mtp.yaml", 1.79, 2.27, 2.49, 2.54, 2.55, 2.55, 2.54, 2.58),
    "kimi-k2.5-eagle3": _speed_bench("eagle3", "kimik2.5_eagle3.yaml", 1.83, 2.43, 2.88, 3.24, 3.46, 3.62, 3.71, 3.77),
    "minimax-m3-eagle3": _speed_bench(
        "eagle3", "minimaxm3_eagle3.yaml", 1.78, 2.38, 2.83, 3.11, 3.35, 3.45, 3.53, 3.74
    ),
}

# What stands in where a scenario says nothing: a published curve of the method, or a law of one share.
# Draft model: the law that brings what the curve above has, for any k. n-gram and suffix: nothing that was published
# for RL rollouts gives positions. These are guesses, and the answer calls them assumed: chat brings less (a suffix tree
# with k 1 on MT-Bench 1.08 tokens of an iteration: 1,226 of 16,993 were drafted, vllm-project/vllm pull request 24852),
# texts that repeat their prompt more (n-gram with k 5 on edits of a file 2.96, pull request 24344).
STANDS_IN: dict[str, str | float] = {
    "mtp": "glm-5.2-mtp",
    "eagle3": "kimi-k2.5-eagle3",
    "draft_model": 0.76,
    "ngram": 0.25,
    "suffix": 0.4,
}
