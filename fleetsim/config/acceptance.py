"""Published acceptance lengths of drafts, and what stands in where a scenario says nothing of acceptance."""

from __future__ import annotations

from typing import NamedTuple

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
        (1.886, 2.656, 3.319),
        "mtp",
        "NovaSky-AI/SkyRL at 0071a0f, docs/content/docs/examples/spec_decode.mdx: DAPO",
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
