"""What the step logs of several frameworks have in common: modes, notes, and why a metric is not used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from fleetsim.history.history import Floats

SYNC = "synchronous"
ALL_WAIT = (
    "A synchronous step: the whole generation counts as the trainer's wait (on shared GPUs they generate meanwhile)."
)

POLICY = "of the policy, its losses or its rewards: says nothing of time, samples or lengths"
OTHERS = "of the evaluation, which is no part of a step"
PART = "a part of another timer, or of another number, which is read"
COUNT = "a running number, or one that others of the log give"
ONE = "of a part of the samples, of one of them, or of one domain: the law of all of them counts"
SPLIT = "how samples are packed onto the trainer's ranks"
RATE = "a rate whose parts are read themselves"
ROUTING = "of the routing of experts"
TEXT = "no number"

EVERY: tuple[tuple[str, str], ...] = (
    (
        POLICY,
        "*kl* *loss* *entropy* *reward* *score* *advantage* *returns* *grad_norm* *clipfrac* "
        "*clip_ratio/* *lr *lr-pg* *log_prob* *logp* *ratio_max* *ratio_mean* *ratio_min* *ratio_var "
        "*imp_weight* *importance_weight* *critic/* *pass@* *pass_at_* *_pass1 *_pass{} *best@* *maj@* "
        "*worst@* *avg@* *approxkl* *variance_proxy/* *rho_* *gdpo/* *rollout_corr/* policy/*",
    ),
    (OTHERS, "eval/* eval_* val-aux/* val-core/* val_* */val_* eval"),
    (ROUTING, "*routed_expert* *max_vio* *min_vio* *avg_vio* *routing_confidence*"),
    (SPLIT, "*balanced_max *balanced_min *minmax_diff *_seqlen/* *padded_seq_len"),
    (COUNT, "*epoch */global_step *training/global_step *train/step *policy_version *param_version"),
)


def by_name(mark: str) -> Callable[[Collection[str], Mapping[str, Floats]], str]:
    """The mode of a framework that logs this metric only where it runs asynchronously."""
    return lambda names, _: "asynchronous" if mark in names else "synchronous"
