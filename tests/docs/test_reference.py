"""The lists that the reference is written from hold everything that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from fleetsim import errors
from fleetsim.cli import main
from fleetsim.cli.doctor import _OF_TESTS
from fleetsim.cli.help import VARIABLES
from fleetsim.replay.diagnose.finding import QUESTIONS, Check

PACKAGE = Path(errors.__file__).parent
# A name behind a dot is an attribute: UsageContext.OPENAI_API_SERVER of SkyRL.
READ = re.compile(r"(?<![\w.])(?:FLEETSIM|OPENAI)_[A-Z]+(?:_[A-Z]+)*(?!\w)")


def test_every_exit_code_is_listed() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    raised = {kind.exit_code for kind in kinds if hasattr(kind, "exit_code")}
    raised |= {errors.NOT_HELD, errors.OUTSIDE_RANGE, main.INTERRUPTED}
    assert {0, *raised} == set(errors.EXIT_CODES)


def test_every_variable_is_listed() -> None:
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    # One with a double underscore is an example of a scenario's value; a bare prefix is how they are found.
    named = {name for text in sources for name in READ.findall(text) if f"{name}__" not in text}
    named -= {name for name in named if name.startswith(_OF_TESTS)}
    assert named <= set(VARIABLES), "read by the package, and not in fleetsim/cli/help.py"
    assert {name for name in VARIABLES if READ.fullmatch(name)} <= named


def test_every_check_has_its_question() -> None:
    assert tuple(QUESTIONS) == get_args(Check)
