"""Loops and assignments of a shell script: over known words as often as bash, otherwise any number of times."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from fleetsim.frameworks.shell_branches import Branching, Run
from fleetsim.frameworks.shell_tests import negated
from fleetsim.frameworks.shell_values import UNKNOWN, UNSET, Value, is_known
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


_OR_NOTHING = re.compile(r"\"?\$\{(\w+):?-\}\"?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[.*?\])?(\+?)=(.*)", re.DOTALL)
_ELEMENT = re.compile(r"\[([^]]+)\]=(.*)", re.DOTALL)


class Assigning(Looping):
    """Runs assignments. locals: of each function at work, the values that its own variables have outside of it.
    exported: names that scripts which this one starts have as well."""

    def __init__(self) -> None:
        super().__init__()
        self.exported: set[str] = set()
        self.locals: list[dict[str, Value]] = []

    def _run_variable_assignments(self, node: Node) -> bool | None:
        return self.sequence(node.children)

    def _run_variable_assignment(self, node: Node) -> bool | None:
        target, given = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return None
        name, adds = source_of(target), any(child.type == "+=" for child in node.children)
        if target.type == "subscript":
            index = target.child_by_field_name("index")
            return self._element(name.partition("[")[0], self.text(index) if index is not None else "", given, adds)
        before = self.values.get(name) if adds else None
        before = () if before == UNSET else before
        if given is not None and given.type == "array":
            words = self.words(given.named_children)
            elements = [match for match in map(_ELEMENT.fullmatch, words) if match]
            self.values |= {f"{name}[{match[1]}]": match[2] for match in elements}
            start = (before,) if isinstance(before, str) else before or ()
            self.assign(name, (*start, *words) if not elements else UNKNOWN)
            return True
        text = self.text(given) if given is not None else ""
        asked = _OR_NOTHING.fullmatch(source_of(given)) if given is not None else None
        text = UNSET if asked and self.values.get(asked[1], UNSET) == UNSET else text
        text += UNSET * (text == UNSET)  # it is set, to what may be nothing
        if isinstance(before, tuple):
            self.assign(name, ("".join(before[:1]) + text, *before[1:]))
        else:
            self.assign(name, (before or "") + text)
        return True

    def _element(self, name: str, index: str, given: Node | None, adds: bool) -> bool | None:
        array, text = self.values.get(name), self.text(given) if given is not None else ""
        if isinstance(array, tuple) and index.isdigit() and int(index) <= len(array):
            before = "".join(array[int(index) : int(index) + 1]) if adds else ""
            self.assign(name, (*array[: int(index)], before + text, *array[int(index) + 1 :]))
        else:
            before = self.values.get(f"{name}[{index}]") if adds else ""
            self.assign(f"{name}[{index}]", (before if isinstance(before, str) and before != UNSET else "") + text)
        return True

    def _run_declaration_command(self, node: Node) -> bool | None:
        kind = source_of(node.children[0])
        for child in node.named_children:
            if child.type == "variable_assignment":
                self._own(kind, source_of(child))
                self._run_variable_assignment(child)
                continue
            for word in self.words([child]):
                match = _ASSIGNMENT.fullmatch(word)
                if match:
                    self._own(kind, word)
                    self.assign(match[1], match[3])
                elif self._own(kind, word):
                    self.values[word] = None
        return True

    def _own(self, kind: str, word: str) -> bool:
        """Keep the value that a variable has outside the function at hand."""
        name = _NAME.match(word)
        self.exported |= {name[0]} if name is not None and kind == "export" else set()
        if name is None or not self.locals or kind not in ("local", "declare", "typeset"):
            return False
        self.locals[-1].setdefault(name[0], self.values.get(name[0], UNSET))
        return True

    def _run_unset_command(self, node: Node) -> bool | None:
        self.values |= dict.fromkeys(self.words(node.named_children))
        return True
