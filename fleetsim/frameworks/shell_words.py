"""Words of a shell script as the shell expands them: quotes, variables, arrays, braces, arithmetic.

The tree of a script is tree-sitter's. What cannot be known without running the script stands as UNKNOWN or UNSET in the
text (`fleetsim.frameworks.shell_values`), so that the words around it stay known.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING

from fleetsim.frameworks.shell_values import (
    UNKNOWN,
    UNSET,
    Part,
    Undecided,
    Variables,
    calculated,
    is_known,
    joined,
    literally,
    operated,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_NAME = r"[A-Za-z_]\w*|\d+|[@*#?$!_-]"
# Arrays that are called so hold flags: where they are not known, the flag before them (`--colocate "${MODEL_ARGS[@]}"`)
# is a switch all the same.
_OF_FLAGS = re.compile(r"arg|opt|flag", re.IGNORECASE)
_SIGN = r":?[-=+?]|##?|%%?|/[/#%]?|\^\^?|,,?|:"
_EXPANSION = re.compile(rf"\$(?:({_NAME})|\{{([#!]?)({_NAME})(?:\[(.*?)\])?({_SIGN})?(.*)\}})", re.DOTALL)
_BRACES = re.compile(r"""([^{}'"$`\\]*)\{([^{}'"$`\\]*)\}(.*)""", re.DOTALL)
_STEPS = re.compile(r"(-?\d+)\.\.(-?\d+)")
_ESCAPED = {True: re.compile(r'\\(["$`\\\n])'), False: re.compile(r"\\(.)", re.DOTALL)}
_MOST_WORDS = 1000
# A word that goes on in the next line: 'a'\
# 'b'. The parser has two words of it.
_GOES_ON = re.compile(r"(?m)^(?:.*['\"]\\\n(?=['\"]))+.*$")


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def tree_of(text: str) -> Node:
    """The root of a script's tree. Any text gives one."""
    # `$(((` confuses the parser where it begins a sum, and is the same with a blank.
    text = text.replace("\r\n", "\n").replace("\0", "").replace("$(((", "$(( (")
    text = _GOES_ON.sub(_on_one_line, text)
    return _parser().parse(text.encode("utf-8", "replace")).root_node


def _on_one_line(lines: re.Match[str]) -> str:
    joined = lines[0].replace("\\\n", "")
    return joined + ("\n\\" if joined.endswith("\\") else "\n") * lines[0].count("\\\n")  # as many lines as before


def sum_of(text: str) -> int:
    """The value of a sum without variables. Raises Undecided."""
    tree = tree_of(f"(({text}))")
    if tree.has_error or tree.child_count != 1:
        raise Undecided
    return calculated(tree.children[0], source_of, lambda name, number: None)


def source_of(node: Node) -> str:
    """A node as it is written."""
    return (node.text or b"").decode("utf-8", "replace")


class WordReader(Variables):
    """The words that a node of the tree becomes with the variables as they stand."""

    def substituted(self, node: Node) -> str:
        """What `$(command)` becomes."""
        self.say(self.remarks, source_of(node)[:80])
        return UNKNOWN

    def text(self, node: Node) -> str:
        """A node as one text: what an assignment stores."""
        return joined(_home(self.parts(node)))

    def pattern(self, node: Node) -> str:
        """A node as a pattern: what is quoted stands for itself."""
        return _pattern(self.parts(node))

    def words(self, nodes: Iterable[Node]) -> list[str]:
        """The words that nodes become: braces expanded, what is unquoted parted at blanks."""
        found: list[str] = []
        for pieces in _whole(nodes):
            first, *more = (self._braced(piece) for piece in pieces)
            for parts in first if not more else [[part for one in (first, *more) for part in one[0]]]:
                found += _words(_home(parts))
        self.characters += sum(len(word) + 1 for word in found)
        return found

    def number(self, node: Node) -> int:
        """The value of a sum. Raises Undecided."""
        return calculated(node, self._operand, self.assign)

    def place(self, index: str) -> int:
        """The number that an index of an array is."""
        return self.number(tree_of(f"(({index}))").children[0])

    def parts(self, node: Node, quoted: bool = False) -> list[Part]:
        """The parts of a word."""
        text, end = source_of(node), len(node.text or b"")
        if text[:1].isspace() and node.child_count:  # some nodes begin with the blanks before them
            blanks = len(text) - len(text.lstrip())
            return _literal(text[:blanks], quoted) + self._parts(node, quoted, text[blanks:], end)
        return self._parts(node, quoted, text, end)

    def _parts(self, node: Node, quoted: bool, text: str, end: int) -> list[Part]:
        match node.type:
            case "raw_string":
                return [(text if quoted else text[1:-1], True)]  # within double quotes, it is no quote
            case "ansi_c_string":
                return [(codecs.decode(text[2:-1].encode("ascii", "backslashreplace"), "unicode_escape"), True)]
            case "string" | "translated_string":
                found = self._within(node, True, end - len(text.encode()) + text.index('"') + 1, end - 1)
                return found or [("", True)] * ("@" not in text)  # "${ARGS[@]}" of no words is no word, quotes or not
            case "simple_expansion" | "expansion":
                return self._of_variable(node, text, end, quoted)
            case "arithmetic_expansion":
                return [(self._sum(node, text), True)]
            case "command_substitution" if text.startswith("$((") and text.endswith("))"):
                return [(self._sum(tree_of(text[1:]).children[0], text), True)]
            case "command_substitution" | "process_substitution":
                return [(self.substituted(node), quoted)]
        return self._within(node, quoted, 0, end) if node.child_count else _literal(text, quoted)

    def _within(self, node: Node, quoted: bool, start: int, end: int) -> list[Part]:
        """The parts of a node between two of its bytes: those of its children, and the text that has no node."""
        text, found, at = node.text or b"", list[Part](), start
        for child in node.children:
            first, last = child.start_byte - node.start_byte, child.end_byte - node.start_byte
            if first > 0 and not quoted and re.match(rb"\$\w", text[first:end]) and child.type == "$":
                # The parser loses some variables within words.
                return found + self.parts(_word_of(text[first:end].decode("utf-8", "replace")))
            if at <= first and last <= end:
                found += _literal(text[at:first].decode("utf-8", "replace"), quoted)
                found += self.parts(child, quoted)
                at = last
        return found + _literal(text[at:end].decode("utf-8", "replace"), quoted)

    def _operand(self, node: Node) -> str:
        if node.type not in ("variable_name", "word", "subscript"):
            return self.text(node)
        name, _, index = source_of(node).rstrip("]").partition("[")
        text = "".join(self.items(name, index, self.place) or ()) if name.isidentifier() else name
        self.presumed = self.presumed or UNSET in text
        return text

    def _sum(self, node: Node, text: str) -> str:
        try:
            return str(self.number(node))
        except Undecided:
            self.say(self.remarks, f"$(({text[3:-2].strip()[:80]}))")
            return UNKNOWN

    def _braced(self, node: Node) -> list[list[Part]]:
        text = source_of(node)
        match = _BRACES.fullmatch(text) if "{" in text else None
        steps = _STEPS.fullmatch(match[2]) if match else None
        if match is None or not (steps or "," in match[2]):
            return [self.parts(node)]
        first, last = map(int, steps.groups()) if steps else (0, 0)
        way = 1 if first <= last else -1
        middle = map(str, range(first, last + way, way)[:_MOST_WORDS]) if steps else match[2].split(",")
        ends = self._braced(_word_of(match[3])) if match[3] else [[]]
        return [[*_literal(match[1] + one, False), *end] for one, end in product(middle, ends)][:_MOST_WORDS]

    def _of_variable(self, node: Node, text: str, end: int, quoted: bool) -> list[Part]:
        match = _EXPANSION.fullmatch(text)
        if match is None:
            self.say(self.remarks, text[:80])
            return [(UNKNOWN, quoted)]
        name, mark, index, sign = match[1] or match[3], match[2] or "", match[4] or "", match[5] or ""
        if "$" in index or '"' in index:
            index = self.text(_word_of(index))
        if mark == "!" and index not in ("@", "*"):
            name, mark = "".join(self.items(name, index, self.place) or ()), ""
            if not re.fullmatch(_NAME, name):
                return [(UNKNOWN, quoted)]
        many = name in "@*" or index in ("@", "*")
        try:
            items = self.items(name, index, self.place)
        except Undecided:
            items = (UNKNOWN,)

        def operand(quoted: bool) -> list[Part]:
            return self._within(node, quoted, end - len(text[match.start(6) :].encode()), end - 1)

        if sign[-1:] in tuple("-=+?"):
            found = self.or_default(name, items, sign, partial(operand, quoted))
            if found is not None:
                return found
        if items == (UNSET,) or (items == (UNKNOWN,) and name not in self.values):
            self.absent(name, many)
            self.presumed = self.presumed or many
            items = () if many and items == (UNSET,) else items
        texts = list(items or ()) if many else [*(items or ("",))]
        if mark and not is_known("".join(texts)):
            return [(UNKNOWN, quoted)]
        if mark == "#":
            return [(str(len(texts) if many else len(texts[0])), quoted)]
        if mark:
            texts = [str(place) for place in range(len(texts))]
        texts = self._operated(texts, sign, operand(False) if sign else [], many, name)
        if index == "@" and texts == [UNKNOWN] and _OF_FLAGS.search(name):
            texts = [f"-{UNKNOWN}"]
        if quoted and "*" in (name, index):
            between = self.values.get("IFS")
            between = between[:1] if isinstance(between, str) and is_known(between) else " "
            return [(between.join(texts), True)]
        return [part for text in texts for part in (None, (text, quoted))][1:]

    def _operated(self, texts: list[str], sign: str, operand: list[Part], many: bool, name: str) -> list[str]:
        if sign == ":":
            try:
                start, *length = (self.place(number) for number in joined(operand).split(":"))
            except Undecided:
                return [UNKNOWN]
            if many:
                if not all(map(is_known, texts)):
                    return [UNKNOWN]
                start -= name == "@" and start > 0
                return texts[start:][: length[0] if length else None]
            return [text[start:][: length[0] if length else None] if is_known(text) else UNKNOWN for text in texts]
        slash = operand.index(("/", False)) if sign[:1] == "/" and ("/", False) in operand else len(operand)
        pattern, by = _pattern(operand[:slash]), joined(operand[slash + 1 :])
        return [operated(text, sign, pattern, by) for text in texts]


def _word_of(text: str) -> Node:
    command = tree_of(f": {text}").child(0)
    word = command.child(command.child_count - 1) if command is not None and command.child_count else None
    return word if word is not None else tree_of(text)


def _whole(nodes: Iterable[Node]) -> Iterator[list[Node]]:
    """The nodes of each word: the parser may have one in two parts, the second a variable without its `$`."""
    word: list[Node] = []
    for node in nodes:
        if word and word[-1].end_byte == node.start_byte:
            text = source_of(word[-1])
            cut = text.endswith("$")
            word[-1:] = [_word_of(text.removesuffix("$")), _word_of(f"{'$' * cut}{source_of(node)}")]
            continue
        if word:
            yield word
        word = [] if node.type == "comment" else [node]
    if word:
        yield word


def _literal(text: str, quoted: bool) -> list[Part]:
    """Text without variables: a backslash goes, and quotes what is behind it."""
    found: list[Part] = []
    for i, piece in enumerate(_ESCAPED[quoted].split(text)):
        escaped = i % 2 == 1
        if piece and not (escaped and piece == "\n"):
            found.append((piece, quoted or escaped))
    return found


def _home(parts: list[Part]) -> list[Part]:
    """`~/folder` without the name of the folder `~`."""
    first = parts[0] if parts else None
    if first and not first[1] and (first[0] == "~" or first[0].startswith("~/")):
        return [(UNKNOWN + first[0][1:], False), *parts[1:]]
    return parts


def _words(parts: Iterable[Part]) -> Iterable[str]:
    """Words of parts: text in quotes stays whole, other text ends a word at its blanks."""
    word: str | None = None
    for part in parts:
        text, quoted = part or (" ", False)
        if quoted:
            word = (word or "") + text
            continue
        pieces = re.split(r"[ \t\n]+", text)
        for i, piece in enumerate(pieces):
            if i and word is not None:
                yield word
                word = None
            if piece:
                word = (word or "") + piece
    if word is not None:
        yield word


def _pattern(parts: Iterable[Part]) -> str:
    return "".join(literally(part[0]) if part[1] else part[0] for part in parts if part)
