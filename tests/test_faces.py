"""A text that names settings says them as flags, and as keywords where Python asked."""

from __future__ import annotations

import pickle

import pytest

from fleetsim.errors import InputError, OutsideError, Problem
from fleetsim.faces import SET, Text, flag, in_python, setting, text
from fleetsim.job.result import keywords


def test_a_setting_reads_as_a_flag_and_as_a_keyword() -> None:
    assert (flag("max_len"), in_python(flag("max_len"))) == ("--max-len", "max_len")
    assert (flag("len_cv", 0), in_python(flag("len_cv", 0))) == ("--len-cv 0", "len_cv=0")
    law = setting("admission.law", "barrier")
    assert (law, in_python(law)) == ("--set admission.law=barrier", '{"admission.law": barrier}')
    assert (SET, in_python(SET)) == ("--set", "changes")


def test_a_text_keeps_both_ways_through_a_template_and_a_process() -> None:
    made = text("raise {}, or lower {} below {}", flag("max_len"), flag("len"), 3)
    assert made == "raise --max-len, or lower --len below 3"
    assert in_python(made) == "raise max_len, or lower len below 3"
    assert in_python(text("so: {}", made)) == "so: raise max_len, or lower len below 3"
    again = pickle.loads(pickle.dumps(made))
    assert (again, in_python(again)) == (made, in_python(made))
    assert in_python("a command stays: fleetsim size --json") == "a command stays: fleetsim size --json"


def test_errors_of_a_python_call_name_keywords() -> None:
    with pytest.raises(InputError) as caught, keywords():
        raise InputError([Problem(flag("max_len"), 3, "is short", text("raise {}", flag("max_len")))])
    assert str(caught.value) == "max_len: 3: is short; raise max_len"
    with pytest.raises(OutsideError, match=r"^to_html is full$"), keywords():
        raise OutsideError(text("{} is full", Text("--html", "to_html")))
