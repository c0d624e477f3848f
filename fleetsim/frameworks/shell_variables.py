"""Variables of a shell script as they stand, and `${NAME:-default}` and its like on their values."""

from __future__ import annotations

from collections.abc import Callable

from fleetsim.frameworks.shell_values import UNKNOWN, UNSET, Value, cut, either, filled, is_known, replaced

Part = tuple[str, bool] | None  # text, and whether it stood in quotes; None: one word ends here
# Variables that every shell has.
_ALWAYS_SET = frozenset(
    {*"0?$!_-", "BASH_SOURCE", "EUID", "HOME", "HOSTNAME", "PATH", "PPID", "PWD", "RANDOM", "SHELL"}
)
_MOST_CHARACTERS = 1_000_000
_MOST_NOTES = 200


class Variables:
    """Values by name; an element of an associative array by `NAME[key]`, the arguments of a script or function by `@`.

    presumed: whether something was decided by the environment's setting nothing. line: of the command at hand.
    characters: of all values so far, so that a script that doubles them ends.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.presumed = False
        self.line = 0
        self.characters = 0
        self.not_understood: list[str] = []
        self.remarks: list[str] = []

    def say(self, notes: list[str], what: str) -> None:
        """Note something once."""
        note = f"line {self.line}: {what}"
        if note not in notes and len(notes) < _MOST_NOTES:
            notes.append(note)

    @property
    def too_long(self) -> bool:
        """Whether there is more text than a script has."""
        return self.characters > _MOST_CHARACTERS

    def assign(self, name: str, value: Value) -> None:
        """Give a variable a value. What grows too long is unknown."""
        self.characters += sum(map(len, value or ()))
        self.values[name] = UNKNOWN if self.too_long else value

    def decided(self, text: str) -> bool | None:
        """Whether a text is more than nothing; what only the environment could set is presumed to be nothing."""
        self.presumed = self.presumed or UNSET in text
        return filled(text)

    def items(self, name: str, index: str, at: Callable[[str], int]) -> tuple[str, ...] | None:
        """The values of a variable, an element, or all elements (index @ or *).

        None: it is known to be unset. (UNSET,): nothing here sets it. at: the place in an array that an index means.
        """
        arguments = self.values.get("@")
        if name == "#":
            if not isinstance(arguments, tuple):
                return (UNKNOWN if arguments == UNKNOWN else f"0{UNSET}",)
            return (str(len(arguments)) if all(map(is_known, arguments)) else UNKNOWN,)
        if name in "@*" or index in ("@", "*"):
            value = self.values.get("@" if name in "@*" else name, UNSET)
            return (value,) if isinstance(value, str) else value
        if name.isdigit() and name != "0":
            value, index = arguments if isinstance(arguments, tuple) else UNSET, str(int(name) - 1)
        else:
            value = self.values.get(name, UNSET)
            value = UNKNOWN if value == UNSET and name in _ALWAYS_SET else value
        if index and f"{name}[{index}]" in self.values:
            value = self.values[f"{name}[{index}]"]
        if not isinstance(value, tuple):
            return None if value is None else (value,)
        if not all(map(is_known, value)):
            return (UNKNOWN,)
        place = at(index or "0")
        return (value[place],) if -len(value) <= place < len(value) else None

    def or_default(
        self, name: str, items: tuple[str, ...] | None, sign: str, default: Callable[[], list[Part]]
    ) -> list[Part] | None:
        """What `-`, `=`, `+`, `?` (with a colon: for nothing, too) put in place of a value; None: the value itself."""
        text = "".join(items or ())
        has = self.decided(text)
        if sign[0] != ":":
            has = bool(items) and text != UNSET
        match sign[-1], has:
            case "?", _:
                if not has:
                    self.values[name] = UNKNOWN
                    return [(UNKNOWN, True)]
                return None
            case "+", None:
                return [(str(either("", joined(default()))), False)]
            case "+", _:
                return default() if has else []
            case _, None:
                return [(UNKNOWN, False)]
            case _, True:
                return None
        found = default()
        if sign[-1] == "=":
            self.assign(name, joined(found))
        return found

    def absent(self, name: str, many: bool) -> None:
        """Tell that nothing in the script sets a variable."""
        if not name.isidentifier():
            self.say(self.remarks, f"${name}")
        elif many:
            self.say(self.not_understood, f"{name} is not set in this script: its flags are missing")
        else:
            self.say(self.remarks, f"${{{name}}} is not set in this script")


def joined(parts: list[Part]) -> str:
    """Parts of a word as one text: what an assignment stores."""
    return "".join(" " if part is None else part[0] for part in parts)


def operated(text: str, sign: str, pattern: str, by: str) -> str:
    """What an operator within `${...}` makes of a value."""
    match sign:
        case "#" | "##" | "%" | "%%":
            return cut(text, sign, pattern)
        case "/" | "//" | "/#" | "/%":
            return replaced(text, sign, pattern, by)
        case "^^" | ",,":
            return text.upper() if sign == "^^" else text.lower()
        case "^" | ",":
            return (text[:1].upper() if sign == "^" else text[:1].lower()) + text[1:]
    return text
