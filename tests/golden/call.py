"""A call: a command line or a script, and what lies in its folder before."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """One call. name: COMMAND_WHAT. argv: the words behind `fleetsim`; or code: a script. columns: of the terminal.

    needs: names of inputs (`tests.golden.inputs`) that lie in its folder. variables: of its environment. served: the
    input that a Prometheus at URL, a word of the call, knows; its last sample is of now.
    """

    name: str
    argv: tuple[str, ...] = ()
    code: str = ""
    columns: int = 80
    needs: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    served: str = ""

    @property
    def command(self) -> str:
        """The command that it belongs to."""
        return self.name.partition("_")[0]


def say(
    name: str, words: str, *needs: str, columns: int = 80, variables: tuple[tuple[str, str], ...] = (), served: str = ""
) -> Call:
    """A command line, its words as a shell reads them."""
    return Call(name, tuple(shlex.split(words)), columns=columns, needs=needs, variables=variables, served=served)


def script(name: str, code: str, *needs: str, columns: int = 80) -> Call:
    """A script of Python, which prints."""
    return Call(name, code=code, columns=columns, needs=needs)
