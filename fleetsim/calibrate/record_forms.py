"""What a record of raw measurements must look like; the rest of the package reads records that do.

A file of raw data may have been cut, merged or edited on its way from the GPU box. A record with a wrong type, or with
a number that no engine can have, counts as damaged: it is left out, and how many there were is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

# No iteration takes three hours, none holds more tokens than 30 bits count, no session lasts 30 years.
MOST_ITERATION_US, MOST_TOKENS, MOST_PAIRS, MOST_US = 10**10, 10**9, 10**18, 10**15


def well_formed(record: Mapping[str, Any]) -> bool:
    """Whether a record has what its kind ("t") needs, in the right types and within reach."""
    form = FORMS.get(str(record.get("t")))
    try:
        _ = form and form.model_validate(record)
    except ValidationError:
        return False
    return all(
        len({len(v) for v in table.values() if isinstance(v, list)}) <= 1
        for table in (record.get("c"), record.get("req"))
        if form and isinstance(table, dict)
    )


def _form(**fields: Any) -> type[BaseModel]:
    """An object whose values, where they are given, are of these types; a name may be several. Other keys are free."""
    known: dict[str, Any] = {name: (kind | None, None) for names, kind in fields.items() for name in names.split()}
    return create_model("Form", __config__=ConfigDict(strict=True), **known)


def _column(low: int, high: int, kind: type = int) -> Any:
    """Numbers between two; a single one counts as a list."""
    number = Annotated[kind, Field(ge=low, le=high)]
    return number | list[number]


_Text = Annotated[str, Field(max_length=9_999)]
_Count = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
_Seconds = Annotated[float, Field(ge=0, le=1e9)]
_Large = Annotated[int, Field(ge=0, le=10**15)]
_LABEL = _form(**{"G P groups slots budget pool_blocks tokens": _Count, "length_scale": _Seconds})
_SEGMENT = {"ph": _Text, "seg": _Text | int, "lab": _LABEL}
_TOKENS, _TIMES = _column(-1, MOST_TOKENS), _column(-1, MOST_US)
_ITERATIONS = _form(
    **{
        "s ds du dv idle warm": _TIMES,
        "dt": _column(-1, MOST_ITERATION_US),
        "nd K npf np Kp hit adm out fin pre run wait blk dr": _TOKENS,
        "A": _column(0, MOST_PAIRS),
    }
)
_DRAFTS = _form(**{"iterations drafted": _Large, "accepted_at": list[_Large]})

FORMS: Mapping[str, type[BaseModel]] = {
    "meta": _form(**{"model source date smi": _Text}),
    "start": _form(
        **{"engine vllm version cuda torch kind": _Text, "tp": _Count, "assumed": list[_Text], "drafts": _DRAFTS},
        cache=_form(**{"num_gpu_blocks block_size": _Count}),
        sched=_form(**{"max_num_seqs max_num_batched_tokens": _Count}),
        comp=_form(sizes=list[_Count]),
        model=_form(max_model_len=_Count, hf=dict[str, Any], dtype=_Text),
        gpu=_form(name=_Text, count=_Count, driver=_Text),
        engine_args=_form(model=_Text, tensor_parallel_size=_Count),
        speculation=_form(method=_Text),
    ),
    "it": _form(**_SEGMENT, c=_ITERATIONS),
    "seg": _form(
        **_SEGMENT,
        **{"wall submit decode_s": _Seconds, "hit_tokens": _Count, "drafts": _DRAFTS},
        req=_form(**{"submit first finish": _TIMES, "n pre P want": _TOKENS}),
    ),
    "obs": _form(
        **_SEGMENT,
        **{
            "dt": _column(-MOST_ITERATION_US, MOST_ITERATION_US, float),
            "ovh nd K np dr": _column(0, MOST_TOKENS, float),
            "of": _column(0, MOST_TOKENS),
            "A": _column(0, MOST_PAIRS, float),
        },
    ),
    "phase": _form(ph=_Text, res=_form(weights=dict[str, Any])),
}
