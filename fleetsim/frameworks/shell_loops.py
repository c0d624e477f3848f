"""Loops of a shell script: over known words as often as bash, otherwise any number of times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fleetsim.frameworks.shell_branches import Branching, Run
from fleetsim.frameworks.shell_tests import negated
from fleetsim.frameworks.shell_values import UNKNOWN, is_known
from fleetsim.frameworks.shell_words import source_of

if TYPE_CHECKING:
    from tree_sitter import Node


class Looping(Branching):
    """Runs `for`, `while` and `until`."""

    def _run_for_statement(self, node: Node) -> bool | None:
        name, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if name is None or body is None:
            return None
        listed = any(child.type == "in" for child in node.children)
        arguments = self.values.get("@")
        words = self.words(node.children_by_field_name("value")) if listed else arguments or ()
        known = all(map(is_known, words)) and node.children[0].type == "for"

        def rounds() -> None:
            for word in words if known else ():
                self.assign(source_of(name), word)
                if not self._round(body):
                    return
            if not known:
                self.values[source_of(name)] = UNKNOWN
                self._any_number(partial(self._round, body))

        return self._loop(rounds)

    def _run_while_statement(self, node: Node) -> bool | None:
        body = node.child_by_field_name("body")
        condition = partial(self.sequence, node.children_by_field_name("condition"))
        until = node.children[0].type == "until"
        round_ = partial(self._round, body) if body else lambda: True
        return self._loop(partial(self._while, (lambda: negated(condition())) if until else condition, round_))

    def _run_c_style_for_statement(self, node: Node) -> bool | None:
        begins, asks, goes_on = (
            partial(self._numbers, node.children_by_field_name(name)) for name in ("initializer", "condition", "update")
        )
        body = node.child_by_field_name("body")
        begins()
        return self._loop(
            partial(self._while, asks, lambda: (body is None or self._round(body)) and goes_on() in (0, 1, None))
        )

    def _numbers(self, nodes: Sequence[Node]) -> bool | None:
        return ([True] + [self._answer(node) for node in nodes])[-1]

    def _loop(self, rounds: Callable[[], None]) -> bool | None:
        outer = {end: self.left.pop(end, []) for end in ("break", "continue")}
        rounds()
        self.join("break")
        self.left |= outer
        return True if not self.ends else None

    def _round(self, body: Node) -> bool:
        """One time through a loop; whether it goes on."""
        self.run(body)
        self.join("continue")
        return not self.ends

    def _while(self, condition: Run, round_: Run) -> None:
        while not self.ends:
            before = dict(self.values)
            status = condition()
            if status is False or self.ends:
                return
            if status is None:
                self._any_number(round_)
                return
            if not round_() or self.values == before or self.left.get("break"):
                return  # done, or nothing would ever change

    def _any_number(self, round_: Run) -> None:
        """A loop of which it is not known how often it runs. What one round changes is not known in the next."""
        commands = self.commands
        for _ in range(2):
            self.commands = list(commands)
            self._either([round_, lambda: True])
