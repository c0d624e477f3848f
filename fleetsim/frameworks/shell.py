"""What a launch script starts, with its variables filled in as far as they can be known without running it.

Followed: `NAME=value`, `export`, arrays (`ARGS=(...)`, `"${ARGS[@]}"`), `${NAME}`, `${NAME:-default}`,
`${NAME:=default}`, `${1:-default}`, `$((1024 * 8))`; of a `case` whose word is known, the branch that is taken.
Not followed, and said so: `$(commands)`, sourced files, positional parameters without a default. An assignment inside
`if`, `for` or any other `case` counts only where nothing else gives the variable a value.
"""

from __future__ import annotations

import re
from dataclasses import field
from fnmatch import fnmatchcase
from itertools import takewhile

from fleetsim.dataclass import dataclass
from fleetsim.frameworks.arithmetic import whole_number
from fleetsim.frameworks.shell_words import Command, Piece, Word, commands_of, word_of

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"([A-Za-z_]\w*|[1-9](?=:?[-=]))(?:\[[@*0]\])?(?:(:?[-=])(.*))?", re.DOTALL)
_IN_ARITHMETIC = re.compile(r"\$?\{?([A-Za-z_]\w*)\}?")
_OPENS, _CLOSES = frozenset({"if", "for", "while", "until", "case"}), frozenset({"fi", "done", "esac"})
_SKIPPED = frozenset({"then", "else", "elif", "do", "{", "}", "!", "time", "exec"}) | _CLOSES
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_ITS_OWN_WORDS = ("$@", "$*")
_MOST_WORDS = 20_000
_MOST_CHARACTERS = 1_000_000
_DEEPEST_DEFAULT = 8

Words = list[tuple[str, bool]]  # text, and whether all of it is known


@dataclass(slots=True)
class Script:
    """The commands of a script after expansion: (words, line).

    not_understood: what may hold settings and could not be followed. remarks: what else could not.
    """

    commands: list[tuple[Words, int]] = field(default_factory=list)
    not_understood: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def expanded(text: str) -> Script:
    """The commands of a script with their variables filled in. Any text gives some."""
    shell = _Shell()
    for command in commands_of(text):
        shell.run(command)
        if shell.characters > _MOST_CHARACTERS:
            shell.say(shell.not_understood, "the rest of the script: it grows too long")
            break
    return Script(shell.commands, shell.not_understood, shell.remarks)


@dataclass(slots=True)
class _Case:
    """An open `case`. value: its word, None where it is not known. depth: of the shell within it. taken: whether the
    branch at hand is; done: whether one was. matched: whether a pattern of the branch at hand fits so far. nested: what
    is open within a branch that is skipped."""

    value: str | None
    depth: int
    taken: bool = False
    done: bool = False
    matched: bool = False
    nested: int = 0


class _Shell:
    """Variables as they stand after each line. maybe: those whose unknown value was given under a condition."""

    def __init__(self) -> None:
        self.variables: dict[str, Words] = {}
        self.maybe: set[str] = set()
        self.cases: list[_Case] = []
        self.commands: list[tuple[Words, int]] = []
        self.not_understood: list[str] = []
        self.remarks: list[str] = []
        self.depth = 0
        self.line = 0
        self.characters = 0

    def say(self, notes: list[str], what: str) -> None:
        """Note something once."""
        if what not in notes and len(notes) < 200:
            notes.append(what)

    def run(self, command: Command) -> None:
        """One command: an assignment changes the variables, everything else is kept."""
        self.line = command.line
        if self.cases and self._of_case(self.cases[-1], command):
            return
        if command.array:
            words = [w for word in command.words for w in self._expand(word)][:_MOST_WORDS]
            before = self.variables.get(command.array) or [] if command.append else []
            self._assign(command.array, [*before, *words][:_MOST_WORDS])
            return
        words_left = list(command.words)
        while words_left:
            first = self._literal(words_left[0])
            if first in _OPENS:
                if first == "case":
                    self._open_case(words_left, command.end)
                    return
                self.depth += 1
                if first == "for":
                    return
                words_left.pop(0)
            elif first in _SKIPPED:
                self.depth -= first in _CLOSES and self.depth > 0
                words_left.pop(0)
            elif first in ("[", "[[", "test"):
                return
            elif first in _DECLARES:
                words_left = [w for w in words_left[1:] if not (self._literal(w) or "").startswith("-")]
            elif first in ("source", "."):
                file = " ".join(t for w in words_left[1:2] for t, _ in self._expand(w))
                self.say(self.not_understood, f"line {self.line}: source {file}: not read")
                return
            elif not self._assigns(words_left[0]):
                break
            else:
                words_left.pop(0)
        if words_left:
            words = [w for word in words_left for w in self._expand(word)][:_MOST_WORDS]
            self.commands.append((words, self.line))

    def _open_case(self, words: list[Word], end: str) -> None:
        """`case WORD in`, with the first pattern behind it where both stand on one line."""
        found = [part for word in words[1:2] for part in self._expand(word)]
        value = found[0][0] if len(found) == 1 and found[0][1] else None
        self.depth += value is None
        self.cases.append(_Case(value, self.depth))
        if len(words) > 3:
            self._pattern(self.cases[-1], words[3], end)

    def _pattern(self, case: _Case, word: Word, end: str) -> None:
        pattern = "".join(piece.text for piece in word)
        case.matched = case.matched or (case.value is not None and fnmatchcase(case.value, pattern))
        if end != "|":
            case.taken, case.matched, case.done = case.matched and not case.done, False, case.done or case.matched

    def _of_case(self, case: _Case, command: Command) -> bool:
        """Whether a command is a pattern of the innermost `case`, ends it, or stands in a branch that is not taken."""
        skips = case.value is not None and not case.taken
        outermost = case.nested == 0 if skips else self.depth == case.depth
        if outermost and len(command.words) == 1 and command.end in ("|", ")"):
            self._pattern(case, command.words[0], command.end)
            return True
        words = [self._literal(word) for word in command.words]
        if outermost and words[:1] == ["esac"]:
            self.cases.pop()
            self.depth = max(0, self.depth - (case.value is None))
            return True
        if skips:
            leading = takewhile(lambda word: word in _OPENS | _SKIPPED, words)
            case.nested = max(0, case.nested + sum((w in _OPENS) - (w in _CLOSES) for w in leading))
        return skips

    def _literal(self, word: Word) -> str | None:
        return word[0].text if len(word) == 1 and word[0].kind == "text" and not word[0].quoted else None

    def _assigns(self, word: Word) -> bool:
        """Carries out `NAME=value`; False if the word is none."""
        if not word or word[0].kind != "text" or word[0].quoted:
            return False
        match = _ASSIGNMENT.fullmatch(word[0].text)
        if match is None:
            return False
        value = (Piece("text", match[3], False), *word[1:])
        text, known = "", True
        for piece in value:
            parts = self._piece(piece, 0)
            text, known = text + " ".join(t for t, _ in parts), known and _known(parts)
            if len(text) + self.characters > _MOST_CHARACTERS:
                known = False
                break
        before = self.variables.get(match[1]) if match[2] else None
        self.characters += len(text)
        self._assign(match[1], [(before[0][0] + text if before else text, known)])
        return True

    def _assign(self, name: str, words: Words) -> None:
        if self.depth and name in self.variables and (_known(self.variables[name]) or name in self.maybe):
            self.say(self.remarks, f"line {self.line}: {name} is set again under a condition: the first value counts")
            return
        if self.depth and not _known(words):
            self.maybe.add(name)
        self.variables[name] = words

    def _expand(self, word: Word, depth: int = 0) -> Words:
        """The words that one word becomes: unquoted variables split at blanks, arrays stay lists."""
        if word and word[-1].text in _ITS_OWN_WORDS and not any(piece.text for piece in word[:-1]):
            self.say(self.remarks, f"line {self.line}: {word[-1].text}")
            return []  # what the script is given goes behind its own flags: it is no value of the last of them
        done: Words = []
        text, known, open_word, nothing = "", True, False, False
        for piece in word:
            if len(text) + len(done) + self.characters > _MOST_CHARACTERS:
                self.characters = _MOST_CHARACTERS + 1
                return []
            parts = self._piece(piece, depth)
            split = piece.kind == "variable" and not (piece.quoted and "[@]" not in piece.text)
            if not split:
                text += " ".join(t for t, _ in parts)
                known = known and all(sure for _, sure in parts)
                open_word = open_word or bool(text) or piece.quoted or not known
                continue
            if not piece.quoted:
                parts = [(t, sure) for whole, sure in parts for t in (whole.split() or [""] * (not sure))]
            nothing = nothing or not parts  # "${ARGS[@]}" of no words is no word, quotes or not
            for i, (part, sure) in enumerate(parts):
                if i:
                    done.append((text, known))
                    text, known = "", True
                text, known, open_word = text + part, known and sure, True
        if open_word and (text or not nothing):
            done.append((text, known))
        self.characters += sum(len(t) + 1 for t, _ in done)
        return done

    def _piece(self, piece: Piece, depth: int) -> Words:
        if piece.kind == "text":
            return [(piece.text, True)]
        if piece.kind == "arithmetic":
            value = whole_number(_IN_ARITHMETIC.sub(self._number, piece.text.strip()))
            if value is None:
                self.say(self.remarks, f"line {self.line}: $(({piece.text.strip()[:80]}))")
                return [("", False)]
            return [(str(value), True)]
        if piece.kind == "variable":
            return self._variable(piece.text, depth)
        self.say(self.remarks, f"line {self.line}: {piece.text[:80]}")
        return [("", False)]

    def _variable(self, text: str, depth: int) -> Words:
        match = _VARIABLE.fullmatch(text)
        if match is None:
            self.say(self.remarks, f"line {self.line}: ${{{text[:80]}}}")
            return [("", False)]
        value = self.variables.get(match[1])
        if value is not None and ("[" in text or (value and (_known(value) or not match[2]))):
            return value
        if match[2] and depth < _DEEPEST_DEFAULT:
            words = self._expand(word_of(match[3]), depth + 1) or [("", True)]
            if match[2].endswith("="):
                self._assign(match[1], words)
            return words
        if "[" in text:
            self.say(
                self.not_understood, f"line {self.line}: {match[1]} is not set in this script: its flags are missing"
            )
            return []
        self.say(self.remarks, f"line {self.line}: ${{{match[1]}}} is not set in this script")
        return [("", False)]

    def _number(self, match: re.Match[str]) -> str:
        value = self.variables.get(match[1])
        return value[0][0] if value and len(value) == 1 and value[0][1] else "?"


def _known(words: Words) -> bool:
    return all(known for _, known in words)
