"""What a launch script starts, worked out from its text as bash would, without running anything.

Followed: variables and arrays, `${NAME:-default}` and its like, arithmetic, tests, `if`, `case`, loops, functions, and
files that the script sources, where they lie beside it. Not known, and said so: what a command prints or answers, and
what the environment sets. Where a test cannot be decided, every branch counts: what they agree on is known.
A variable that nothing in the script sets is presumed to be unset where the script asks for that itself
(`${NAME:-default}`, `[ -z "$NAME" ]`), unless the script would then refuse to run. What Slurm sets
follows from the script's own `#SBATCH` lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from posixpath import basename, normpath
from typing import TYPE_CHECKING

from msgspec import Struct, field

from fleetsim.config.data_files import read_text
from fleetsim.errors import InputError
from fleetsim.frameworks.arguments import entry_of, of_slurm, with_processes
from fleetsim.frameworks.shell_branches import INPUT, OUTPUT, Branching, Run, shown
from fleetsim.frameworks.shell_tests import asks_for_npu, holds, printed, read
from fleetsim.frameworks.shell_values import UNKNOWN, UNSET, Value, Words, is_known
from fleetsim.frameworks.shell_words import source_of, tree_of

if TYPE_CHECKING:
    from tree_sitter import Node

_SUCCEEDS = frozenset({"true", ":", "echo", "printf", "set", "shopt", "trap", "ulimit", "sleep"})
_TELL = frozenset({"echo", "printf"})  # start nothing, whatever they say
_SHELLS = frozenset({"bash", "sh", "zsh", "sbatch"})
_STARTS = frozenset({"bash", "sh"})
_IN_FRONT = frozenset({"env", "nohup", "numactl", "setsid", "srun", "stdbuf", "sudo", "timeout", "uv"})
_DEEPEST = 20
_LARGEST_FILE = 2**20
_MOST_ABOVE = 6
_SHORTEST_SCRIPT = 20
_STARTS_ONE = re.compile("python|torchrun|accelerate|deepspeed|uv run")
_OR_NOTHING = re.compile(r"\"?\$\{(\w+):?-\}\"?")
_HIDES = re.compile(r"[1&]?>")  # takes what is printed
_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[.*?\])?(\+?)=(.*)", re.DOTALL)
_ELEMENT = re.compile(r"\[([^]]+)\]=(.*)", re.DOTALL)


class Script(Struct):
    """The commands of a script after expansion: (words, line).

    not_understood: what may hold settings and could not be followed. remarks: what else could not.
    """

    commands: list[tuple[Words, int]] = field(default_factory=list)
    not_understood: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def expanded(text: str, folder: Path | None = None, name: str = "") -> Script:
    """The commands of a script with their variables filled in. Any text gives some.

    folder: where the files that it sources are looked for; None reads none. name: of the script's own file there.
    """
    shell = _Shell(folder)
    shell.values.update(of_slurm(text))
    if name and folder is not None:
        shell.values |= {"0": os.path.abspath(folder / name), "BASH_SOURCE": (os.path.abspath(folder / name),)}
    try:
        shell.run_text(text)
        if not any(entry_of(shown(words)) for words, _ in shell.commands):
            shell.run_functions()
    except RecursionError:
        shell.say(shell.not_understood, "the rest of the script: it is nested too deeply")
    return Script([(shown(words), line) for words, line in shell.commands], shell.not_understood, shell.remarks)


def places(folder: Path, *names: str) -> Iterator[Path]:
    """Files of these names beside a file, then in the folders above: repositories start theirs from their root."""
    for root in (folder, *folder.parents[:_MOST_ABOVE]):
        for name in names:
            try:
                if (root / name).is_file():
                    yield root / name
            except (OSError, ValueError):
                continue


class _Shell(Branching):
    """Runs commands and assignments.

    deep: how many texts within texts are run; lines are those of the first. locals: of each function at work, the
    values that its own variables have outside of it. exported: names that scripts which this one starts have as well.
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__()
        self.folder = folder
        self.functions: dict[str, Node] = {}
        self.deep = 0
        self.exported = {OUTPUT}
        self.locals: list[dict[str, Value]] = []

    def run_text(self, text: str) -> bool | None:
        """A script, a sourced file, or the words of `eval`."""
        if self.deep >= _DEEPEST:
            return None
        self.deep += 1
        status = self.run(tree_of(text.replace(UNSET, UNKNOWN)))
        self.deep -= 1
        return status

    def run_functions(self) -> None:
        """All functions, as if they were called: for a script that is told on its command line which one to call."""
        self.deep += 1
        for name, body in list(self.functions.items()):
            self.say(self.remarks, f"{name} is read although nothing in this script calls it")
            self.ends = ""
            self._function(body, UNSET)
        self.deep -= 1

    def run(self, node: Node) -> bool | None:
        """One statement."""
        if self.deep == 1:
            self.line = node.start_point[0] + 1
        return getattr(self, f"_run_{node.type}", self._unparsed)(node)

    def substituted(self, node: Node) -> str:
        """What `$(command)` becomes: what is printed there; UNKNOWN where that does not follow from the words."""
        text = self.printed(partial(self.sequence, node.children))
        return text.rstrip("\n") if isinstance(text, str) else super().substituted(node)

    def _unparsed(self, node: Node) -> bool | None:
        """What the parser makes nothing of: its words as one command, and its statements."""
        is_statement = {child: hasattr(self, f"_run_{child.type}") for child in node.named_children}
        self._keep(self.words([child for child, is_one in is_statement.items() if not is_one]))
        return self.sequence([child for child, is_one in is_statement.items() if is_one])

    # -------------------------------------------------------------------------------------------------------- commands

    def _run_command(self, node: Node) -> bool | None:
        breaks = [i for i in range(1, node.child_count) if _ends_a_line(node, *node.children[i - 1 : i + 1])]
        above = [i for i in breaks if node.children[i - 1].type == "variable_assignment"]
        start, end = above[-1] if above else 0, min(set(breaks) - set(above), default=node.child_count)
        self.sequence([child for child in node.children[:start] if child.type == "variable_assignment"])
        if above and self.deep == 1:
            self.line = node.children[start].start_point[0] + 1
        own = [child for child in node.children[start:end] if child.type == "variable_assignment"]
        self.presumed = False
        names = ("name", "argument")
        words = self.words(node.children[i] for i in range(start, end) if node.field_name_for_child(i) in names)
        before = {name: self.values.get(name, UNSET) for name in (source_of(child.children[0]) for child in own)}
        self.sequence(own)
        self.exported |= (added := before.keys() - self.exported)
        status = self._reading(node.children[start:end], partial(self._call, words)) if words else True
        self.exported -= added
        self.values |= before if words else {}
        if end < node.child_count and not self.ends:
            behind = (node.text or b"")[node.children[end].start_byte - node.start_byte :]
            return self.run_text(behind.decode("utf-8", "replace"))
        return status

    def _call(self, words: list[str]) -> bool | None:
        """A simple command: the shell's own are carried out, the others are kept."""
        name, *rest = words
        arguments = self.values.get("@")
        match name:
            case "exit" | "return" | "break" | "continue":
                self.ends = name
                return rest[0] == "0" if rest and is_known(rest[0]) else None if rest else True
            case "false":
                return False
            case "cd" if OUTPUT in self.values:
                self.values["PWD"] = normpath(next((word for word in rest if word != "--"), UNKNOWN))
            case "test":
                return holds(self, rest)
            case "set" if rest and (rest[0] == "--" or rest[0][:1] not in ("-", "+")):
                self.values["@"] = tuple(rest[rest[0] == "--" :])
                return True
            case "shift":
                count = int(rest[0]) if rest and rest[0].isdigit() else 1
                if isinstance(arguments, tuple):
                    self.values["@"] = arguments[count:] if all(map(is_known, arguments)) else (UNKNOWN,)
                return True
            case "eval":
                return self.run_text(" ".join(rest))
            case "source" | "." if rest:
                self.values["@"] = tuple(rest[1:]) or self.values.get("@", UNSET)
                status = self._run_file(rest[0], "source ")
                self.values |= {"@": arguments or UNSET} if rest[1:] else {}
                return status
            case "read" | "mapfile" | "readarray" | "getopts":
                given = self.values.get(INPUT)
                found = read(words, given, self.values.get("IFS")) if isinstance(given, str) else None
                found = found or {word: UNKNOWN for word in rest if word.isidentifier()}
                self.values |= found
                return None if INPUT not in found else name != "read" or given != ""
            case "exec" if len(rest) == 1 and rest[0][:1] == "{":  # a file's number, not a program
                return True
            case "exec" | "command" | "builtin" | "time" if rest and not rest[0].startswith("-"):
                status = self._call(rest)
                self.ends = "exit" if name == "exec" else self.ends
                return status
        if "/" in name and name.endswith(".sh"):
            return self._another(*words)
        shell = next((i for i, word in enumerate(words) if basename(word) in _STARTS), len(words))
        script = next((i for i in range(shell + 1, len(words)) if words[i][:1] != "-"), 0)
        if script and words[script].endswith(".sh") and (shell == 0 or basename(name) in _IN_FRONT):
            # What stands in front changes nothing of it: `nohup bash run.sh`, `uv run bash run.sh`.
            given = [match for word in words[:shell] if (match := _ASSIGNMENT.fullmatch(word))]
            return self._another(*words[script:], **{match[1]: match[3] for match in given})
        if name in self.functions and len(self.locals) < _DEEPEST:
            # What the script is given is handed on: main "$@"
            return self._function(self.functions[name], UNSET if self.presumed and not rest else tuple(rest))
        if name not in _TELL:
            self._keep(words)
        if asks_for_npu(words):
            self.say(self.remarks, f"{' '.join(words)[:60]}: no NPU is presumed")
            return False
        told = (self.values.get(name) for name in ("PWD", INPUT))
        text = printed([word for word in words if word != "--"], *told)
        self.prints(text and f"{text}\n")
        return True if name in _SUCCEEDS or (OUTPUT in self.values and text is not None) else None

    def _keep(self, words: list[str]) -> None:
        """Note a command, and those of a script in one of its words: `srun bash -c "python ..."`."""
        if words:
            given = {name: self.values.get(name) for name in self.exported}
            self.commands.append((with_processes(words, given), self.line))
        for word in words:
            if len(word) > _SHORTEST_SCRIPT and _STARTS_ONE.search(word) and re.search(r"\s", word):
                notes = list(self.not_understood), list(self.remarks)
                self.apart(partial(self.run_text, word))
                self.not_understood, self.remarks = notes

    def _another(self, file: str, *arguments: str, **added: str) -> bool | None:
        """A script that this one starts: it has what is exported and added, and functions of its own."""
        functions, given = self.functions, UNSET if self.presumed and not arguments else arguments

        def run() -> bool | None:
            self.functions = {}
            self.values = {name: value for name, value in self.values.items() if name in self.exported}
            self.values |= {**added, "@": given}
            return self._run_file(file, "")

        status = self.apart(run)
        self.functions = functions
        return status

    def _run_file(self, file: str, how: str) -> bool | None:
        """A script in another file, beside this one or above it: repositories start theirs from their root."""
        # A folder that is not known is taken for the script's own.
        outer, path, sources = self.folder, file.lstrip(UNKNOWN), self.values.get("BASH_SOURCE", UNSET)
        found = places(outer, path, path.lstrip("/")) if outer is not None and is_known(path) else iter(())
        place = next(found, None)
        try:
            text = None if place is None else read_text(place, "SCRIPT", _LARGEST_FILE)
        except (OSError, InputError):
            text = None
        if place is None or text is None:
            self.say(self.not_understood if how else self.remarks, f"{how}{shown([file])[0][0]}: not read")
            return None
        self.folder = place.parent
        self.values["BASH_SOURCE"] = (str(place), *(sources if isinstance(sources, tuple) else ()))
        self.values |= {} if how else {"0": str(place)}
        status = self.run_text(text)
        self.folder, self.values["BASH_SOURCE"] = outer, sources
        return status

    def _function(self, body: Node, arguments: Value) -> bool | None:
        self.locals.append({"@": self.values.get("@", UNSET)})
        self.values["@"] = arguments
        outer = self.left.pop("return", [])
        status = self.run(body)
        status = None if self.left.get("return") else status
        self.join("return")
        self.left["return"] = outer
        self.values |= self.locals.pop()
        return status

    def _run_function_definition(self, node: Node) -> bool | None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[source_of(name)] = body
        return True

    def _run_redirected_statement(self, node: Node) -> bool | None:
        body, before = node.child_by_field_name("body"), self.values.get(OUTPUT)
        status = self._reading(node.children, partial(self.run, body)) if body is not None else True
        if before is not None and len(node.children) > 1 and _HIDES.match(source_of(node.children[1])):
            self.values[OUTPUT] = before
        for redirect in node.children:
            if redirect.type == "heredoc_redirect":
                status = self._with_heredoc(redirect, status)
        return status

    def _reading(self, parts: Sequence[Node], run: Run) -> bool | None:
        """Run something with what its redirections let it read; None where that is not known."""
        given = [self._given(part) for part in parts if "redirect" in part.type and source_of(part)[:1] == "<"]
        if not given:
            return run()
        outer, self.values[INPUT] = self.values.get(INPUT), given[-1]
        status = run()
        self.values[INPUT] = outer
        return status

    def _given(self, redirect: Node) -> Value:
        kinds = {child.type: child for child in redirect.children}
        if redirect.type == "herestring_redirect":
            return self.text(redirect.children[-1]) + "\n"
        if "process_substitution" in kinds:
            return self.printed(partial(self.sequence, kinds["process_substitution"].children))
        begins, text = kinds.get("heredoc_start"), kinds.get("heredoc_body")
        if not begins or not text:
            return None
        return source_of(text) if source_of(begins)[:1] in tuple("'\"\\") else self.text(text)

    def _with_heredoc(self, node: Node, status: bool | None) -> bool | None:
        """A text behind a command: what a shell is given runs. The parser has the rest of the command's line in it."""
        kinds, right = {child.type: child for child in node.children}, node.child_by_field_name("right")
        content = self._given(node)
        if self.commands and not _SHELLS.isdisjoint(map(basename, self.commands[-1][0])) and isinstance(content, str):
            self.apart(partial(self.run_text, content))
        if "pipeline" in kinds:
            return self.run(kinds["pipeline"])
        return self.in_order(lambda: status, "&&" in kinds, partial(self.run, right)) if right is not None else status

    # ----------------------------------------------------------------------------------------------------- assignments

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


def _ends_a_line(command: Node, child: Node, behind: Node) -> bool:
    """Whether a line ends between two parts of a command, which the parser then has from two commands."""
    between = (command.text or b"")[child.end_byte - command.start_byte : behind.start_byte - command.start_byte]
    return b"\n" in between.replace(b"\\\n", b"")
