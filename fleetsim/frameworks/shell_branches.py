"""Ways through a shell script: `if`, `case`, loops, functions' ends. Where a test is not decided, every way counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import zip_longest
from typing import TYPE_CHECKING

from fleetsim.frameworks.arguments import entry_of
from fleetsim.frameworks.shell_tests import holds, holds_in_double_brackets, negated
from fleetsim.frameworks.shell_values import (
    UNKNOWN,
    UNSET,
    Undecided,
    Value,
    Words,
    either,
    fits,
    is_known,
    words_of_either,
)
from fleetsim.frameworks.shell_words import WordReader, source_of

if TYPE_CHECKING:
    from tree_sitter import Node

Run = Callable[[], bool | None]  # does something, and says whether that succeeded; None: not known
State = dict[str, Value]
_MOST_STEPS = 20_000
OUTPUT, INPUT = ">", "<"  # variables: what is printed so far, where that is asked for, and what a command may read


def shown(words: Sequence[str]) -> Words:
    """Words without what is not known of them, and whether that is nothing."""
    return [(word.replace(UNKNOWN, "").replace(UNSET, ""), is_known(word)) for word in words]


class Branching(WordReader):
    """Runs the statements that hold others.

    commands: words and line of what was started. ends: `exit`, `return`, `break` or `continue` on the way, else
    nothing. left: the variables of ways on which one of these was met under a condition.
    """

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[tuple[list[str], int]] = []
        self.ends = ""
        self.left: dict[str, list[State]] = {}
        self.steps = 0

    @abstractmethod
    def run(self, node: Node) -> bool | None:
        """One statement. Its status: True where it succeeds, None where that is not known."""

    def sequence(self, nodes: Sequence[Node]) -> bool | None:
        """Statements in order; one with `&` behind it changes no variable."""
        status: bool | None = True
        for node, behind in zip_longest(nodes, nodes[1:]):
            self.steps += node.is_named
            if self.steps > _MOST_STEPS or self.too_long:
                self.say(self.not_understood, "the rest of the script: it grows too long")
                self.ends = "exit"
            if node.is_named and not self.ends:
                alone = behind is not None and behind.type == "&"
                status = self.apart(partial(self.run, node)) if alone else self.run(node)
        return status

    def apart(self, run: Run) -> bool | None:
        """Something in a shell of its own: its variables go with it, but for what it prints."""
        before, left, self.left = dict(self.values), self.left, {}
        status = run()
        before |= {OUTPUT: self.values[OUTPUT]} if OUTPUT in before else {}
        self.values, self.left, self.ends = before, left, ""
        return status

    def printed(self, run: Run, given: Value = None) -> Value:
        """What something in a shell of its own prints; None where that is not known. given: what it reads."""
        outer = {name: self.values.pop(name) for name in (OUTPUT, INPUT) if name in self.values}
        self.values |= {OUTPUT: "", INPUT: given}
        self.apart(run)
        told = self.values.pop(OUTPUT)
        self.values |= outer
        return told

    def prints(self, text: Value) -> None:
        """Note what is printed, where that is asked for. None: it is not known."""
        before = self.values.get(OUTPUT)
        if isinstance(before, str):
            self.assign(OUTPUT, before + text if isinstance(text, str) else None)

    def join(self, end: str) -> None:
        """Where `break`, `continue` or `return` leads to: on with what is known on every way there."""
        states = self.left.pop(end, [])
        if self.ends in ("", end):
            states.append(self.values)
        elif states:
            self.left.setdefault(self.ends, []).append(self.values)
        if states:
            self.ends, self.values = "", reduce(self._agreed, states)

    def _run_comment(self, _: Node) -> bool | None:
        return True

    def _run_program(self, node: Node) -> bool | None:
        return self.sequence(node.children)

    _run_do_group = _run_program

    def _run_subshell(self, node: Node) -> bool | None:
        return self.apart(partial(self.sequence, node.children))

    def _run_pipeline(self, node: Node) -> bool | None:
        text: Value = None
        for child in node.named_children:
            text = self.printed(partial(self.run, child), text)
        self.prints(text)
        return None

    def _run_compound_statement(self, node: Node) -> bool | None:
        return self._answer(node) if node.children[0].type == "((" else self.sequence(node.children)

    def _run_negated_command(self, node: Node) -> bool | None:
        return negated(self.sequence(node.named_children))

    # ------------------------------------------------------------------------------------------------------ conditions

    def _run_test_command(self, node: Node) -> bool | None:
        match node.children[0].type:
            case "[[":
                return holds_in_double_brackets(self, node)
            case "((":
                return self._answer(node)
        return holds(self, self._flat(node.children[1:-1]))

    def _flat(self, nodes: Sequence[Node]) -> list[str]:
        """The words of `[ ... ]`, which the parser has as an expression."""
        words: list[str] = []
        for node in nodes:
            inner = node.type in (
                "binary_expression",
                "unary_expression",
                "parenthesized_expression",
                "negated_command",
            )
            words += self._flat(node.children) if inner else self.words([node])
        return words

    def _answer(self, node: Node) -> bool | None:
        try:
            return bool(self.number(node))
        except Undecided:
            return None

    def _run_list(self, node: Node) -> bool | None:
        then = partial(self.run, node.children[-1])
        return self.in_order(partial(self.run, node.children[0]), any(c.type == "&&" for c in node.children), then)

    def in_order(self, first: Run, both: bool, then: Run) -> bool | None:
        """`first && then` (both), `first || then`."""
        return self._if(first, then, lambda: False) if both else self._if(first, lambda: True, then)

    def _run_if_statement(self, node: Node) -> bool | None:
        return self._clause(node, [child for child in node.children if child.type in ("elif_clause", "else_clause")])

    def _clause(self, node: Node, others: Sequence[Node]) -> bool | None:
        """`if` or `elif` with those behind it, or `else`, which has no condition."""
        own = [child for child in node.children if child not in others]
        then = next((i for i, child in enumerate(own) if child.type == "then"), 0)
        other = partial(self._clause, others[0], others[1:]) if others else lambda: True
        return self._if(partial(self.sequence, own[:then]), partial(self.sequence, own[then:]), other)

    def _if(self, condition: Run, then: Run, other: Run) -> bool | None:
        self.presumed = False
        status = condition()
        if self.ends:
            return status
        if status is None:
            return self._either([then, other])
        return self._chosen(then, [other]) if status else self._chosen(other, [then])

    def _chosen(self, run: Run, others: Sequence[Run]) -> bool | None:
        """The branch that is taken. A script that then refuses to run is given what it asks for."""
        presumed, before = self.presumed, dict(self.values)
        status = run()
        if not (presumed and self.ends == "exit"):
            return status
        self.ends, self.values = "", before
        return self._either(others)

    def _either(self, runs: Sequence[Run]) -> bool | None:
        """One of several branches, it is not known which."""
        start, commands, statuses = self.values, self.commands, set[bool | None]()
        ends, states, started = list[str](), list[State](), list[list[tuple[list[str], int]]]()
        for run in runs:
            self.values, self.commands = dict(start), []
            statuses.add(run())
            started.append(self.commands)
            ends.append(self.ends)
            (self.left.setdefault(self.ends, []) if self.ends else states).append(self.values)
            self.ends = ""
        self.commands = commands + reduce(_started, started)
        self.ends = "" if states else min(ends, key="exit".__eq__)
        self.values = reduce(self._agreed, states) if states else self.values
        return statuses.pop() if len(statuses) == 1 else None

    def _agreed(self, a: State, b: State) -> State:
        agreed: State = {}
        for name in {**a, **b}:
            mine, its = a.get(name, UNSET), b.get(name, UNSET)
            told = name in (OUTPUT, INPUT)
            agreed[name] = either(mine, its) if not told or mine == its else None
            if agreed[name] not in (mine, its) and not told:
                self.say(self.remarks, f"{name} depends on a condition that is not known here")
        return agreed

    def _run_case_statement(self, node: Node) -> bool | None:
        self.presumed = False
        value = "".join(self.text(child) for child in node.children_by_field_name("value")).replace(UNSET * 2, "")
        items = [child for child in node.named_children if child.type == "case_item"]
        bodies: list[Run] = [partial(self._case_items, items[i:]) for i in range(len(items))]
        may: list[Run] = []
        for item, body in zip(items, bodies, strict=True):
            answers = {fits(value, self.pattern(pattern)) for pattern in item.children_by_field_name("value")}
            if answers != {False}:
                may.append(body)
            if True in answers:
                break
        else:
            may.append(lambda: True)
        return self._chosen(may[0], bodies or may) if len(may) == 1 else self._either(may)

    def _case_items(self, items: Sequence[Node]) -> bool | None:
        children = items[0].children
        status = self.sequence(children[next((i for i, child in enumerate(children) if child.type == ")"), 0) :])
        return self._case_items(items[1:]) if children[-1].type == ";&" and items[1:] and not self.ends else status

    # ----------------------------------------------------------------------------------------------------------- loops

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


def _started(some: list[tuple[list[str], int]], others: list[tuple[list[str], int]]) -> list[tuple[list[str], int]]:
    """What two branches start: one command of those that start the same program, with what is known of both."""
    programs = [entry[0] if (entry := entry_of(shown(words))) else "" for words, _ in some]
    found = list(some)
    for words, line in others:
        entry = entry_of(shown(words))
        if entry and entry[0] in programs:
            at = programs.index(entry[0])
            programs[at] = ""
            found[at] = list(words_of_either(found[at][0], words)), found[at][1]
        else:
            found.append((words, line))
    return found
