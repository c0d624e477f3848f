"""A shell script as commands and words: quotes, comments, line continuations, here-documents, arrays.

Only the shape is read here; what a variable holds is the business of `fleetsim.frameworks.shell`. Nothing is run.
"""

from __future__ import annotations

import re

from fleetsim.dataclass import dataclass

_NAME = re.compile(r"[A-Za-z_]\w*")
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\(")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([\w.]+)\1")
_REDIRECT = re.compile(r"(?:\d*|&)(?:>>|>&|<&|>\||>|<<<|<)&?")
_OPENING, _CLOSING = {"(": ")", "{": "}"}, {")", "}"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word. kind: text, variable (`text` is what stands in the braces), arithmetic, or opaque ($(...))."""

    kind: str
    text: str
    quoted: bool


Word = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command, or one array assignment (array: its name; append: `+=`). end: the character behind it."""

    words: tuple[Word, ...]
    line: int
    array: str = ""
    append: bool = False
    end: str = ""


def commands_of(text: str) -> list[Command]:
    """The commands of a script, in order. Any text gives some: what never closes goes to the end of the text."""
    return _Lexer(text.replace("\\\r\n", " ").replace("\\\n", " \x01").replace("\r\n", "\n")).all()


def word_of(text: str) -> Word:
    """One word from the text of a default value, its blanks kept."""
    lexer = _Lexer(text)
    pieces: list[Piece] = []
    while lexer.at < len(text):
        lexer.piece(pieces, quoted=False, ends="")
    return tuple(pieces)


class _Lexer:
    """One pass over the text. A continued line leaves the mark \\x01, so that line numbers stay right."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text, 0, 1
        self.heredocs: list[str] = []

    def all(self) -> list[Command]:
        commands: list[Command] = []
        words: list[Word] = []
        first_line = 1
        while self.at < len(self.text):
            self._blanks()
            char = self.text[self.at : self.at + 1]
            if char in ("", "\n", ";", "&", "|", "(", ")"):
                if words:
                    commands.append(Command(tuple(words), first_line, end=char))
                    words = []
                self._end_of_command(char)
                continue
            if char == "#":
                self._comment()
                continue
            if not words:
                first_line = self.line
                array = _ARRAY.match(self.text, self.at)
                if array:
                    self.at = array.end()
                    commands.append(Command(self._array(), first_line, array[1], bool(array[2])))
                    continue
            heredoc, redirect = _HEREDOC.match(self.text, self.at), _REDIRECT.match(self.text, self.at)
            if heredoc:
                self.heredocs.append(heredoc[2])
                self.at = heredoc.end()
            elif redirect and redirect[0]:
                self.at = redirect.end()
                self._blanks()
                self._word()
            else:
                words.append(self._word())
        if words:
            commands.append(Command(tuple(words), first_line))
        return commands

    def piece(self, pieces: list[Piece], quoted: bool, ends: str) -> None:
        """One part of a word at the cursor, which moves on by at least one character."""
        char = self.text[self.at]
        if char == "$":
            pieces.append(self._dollar(quoted))
        elif char == "`":
            end = self._find("`", self.at + 1)
            pieces.append(Piece("opaque", self.text[self.at : end + 1], quoted))
            self.at = end + 1
        elif char == "\\":
            pieces.append(Piece("text", self.text[self.at + 1 : self.at + 2], True))
            self.at += 2
        elif char == "'" and not quoted:
            end = self._find("'", self.at + 1)
            pieces.append(Piece("text", self.text[self.at + 1 : end], True))
            self._count_lines(self.at, end)
            self.at = end + 1
        elif char == '"' and not quoted:
            self.at += 1
            pieces.append(Piece("text", "", True))  # an empty "" is a word
            while self.at < len(self.text) and self.text[self.at] != '"':
                self.piece(pieces, quoted=True, ends='"')
            self.at += 1
        else:
            start = self.at
            self.at += 1
            stop = '$`\\"' if quoted else "$`\\\"'" + ends
            while self.at < len(self.text) and self.text[self.at] not in stop:
                self.at += 1
            self._count_lines(start, self.at)
            pieces.append(Piece("text", self.text[start : self.at].replace("\x01", ""), quoted))

    def _dollar(self, quoted: bool) -> Piece:
        text, start = self.text, self.at
        if text.startswith("$((", start):
            end = self._closing(start + 1)
            self.at = end + 1
            return Piece("arithmetic", text[start + 3 : end - 1], quoted)
        if text.startswith("$(", start):
            end = self._closing(start + 1)
            self._count_lines(start, end)
            self.at = end + 1
            return Piece("opaque", text[start : end + 1], quoted)
        if text.startswith("${", start):
            end = self._closing(start + 1)
            self.at = end + 1
            return Piece("variable", text[start + 2 : end], quoted)
        name = _NAME.match(text, start + 1)
        if name:
            self.at = name.end()
            return Piece("variable", name[0], quoted)
        if text[start + 1 : start + 2] in tuple("@*#?0123456789"):
            self.at = start + 2
            return Piece("opaque", text[start : start + 2], quoted)
        self.at = start + 1
        return Piece("text", "$", quoted)

    def _closing(self, opening: int) -> int:
        """The index of the bracket that closes the one at `opening`; the end of the text if none does."""
        stack: list[str] = []
        for i in range(opening, len(self.text)):
            char = self.text[i]
            if char in _OPENING:
                stack.append(_OPENING[char])
            elif char in _CLOSING and stack and char == stack[-1]:
                stack.pop()
                if not stack:
                    return i
        return len(self.text)

    def _word(self) -> Word:
        pieces: list[Piece] = []
        while self.at < len(self.text) and self.text[self.at] not in " \t\n\x01;&|()":
            self.piece(pieces, quoted=False, ends=" \t\n\x01;&|()")
        return tuple(pieces)

    def _array(self) -> tuple[Word, ...]:
        words: list[Word] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            char = self.text[self.at]
            if char in " \t\n\x01":
                self.line += char in "\n\x01"
                self.at += 1
            elif char == "#":
                self._comment()
            elif char in ";&|(":
                self.at += 1
            else:
                words.append(self._word())
        self.at += 1
        return tuple(words)

    def _blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\x01":
            self.line += self.text[self.at] == "\x01"
            self.at += 1

    def _end_of_command(self, char: str) -> None:
        self.at += 1
        if char == "\n":
            self.line += 1
            while self.heredocs and self.at < len(self.text):
                end = self._find("\n")
                if self.text[self.at : end].strip() == self.heredocs[0]:
                    self.heredocs.pop(0)
                self.line += 1
                self.at = end + 1

    def _comment(self) -> None:
        """A comment ends with its line, even where that line asks to be continued: the command goes on below it."""
        while self.at < len(self.text) and self.text[self.at] not in "\n\x01":
            self.at += 1

    def _find(self, what: str, start: int | None = None) -> int:
        found = self.text.find(what, self.at if start is None else start)
        return len(self.text) if found < 0 else found

    def _count_lines(self, start: int, end: int) -> None:
        self.line += self.text.count("\n", start, end) + self.text.count("\x01", start, end)
