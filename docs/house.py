"""The house as its imports show it: files, lines, long functions, import circles, arrows against the layers."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

# Rooms that translate other systems' words into ours: they must name our policies.
TRANSLATORS = ("policies", "frameworks")
LONG_FUNCTION, LONG_COMMAND = 60, 40


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the package. name: dotted, below the package. imports: the files it imports, types included."""

    name: str
    path: Path
    tree: ast.Module
    lines: int
    imports: frozenset[str]

    @property
    def room(self) -> str:
        """The folder, or the file where it stands at the top."""
        return self.name.partition(".")[0]


def sources(root: Path) -> dict[str, Source]:
    """Every Python file of the package at `root`/fleetsim, by its dotted name; the package itself is ""."""
    package = root / "fleetsim"
    paths = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found = {}
    for name, path in paths.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        found[name] = Source(name, path, tree, text.count("\n"), frozenset(_imported(tree, paths) - {name}))
    return found


def scripts(folder: Path) -> dict[str, Source]:
    """The scripts of a folder by their names; imports: of each other."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        plain = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        plain += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        bare = {name.removeprefix(f"{folder.name}.") for name in plain}
        here = {name for name in bare if (folder / f"{name}.py").exists()}
        found[path.stem] = Source(path.stem, path, tree, text.count("\n"), frozenset(here - {path.stem}))
    return found


def _layers_contract(root: Path) -> dict[str, list[str]]:
    """The contract of pyproject.toml that says the order of the floors; empty where there is none."""
    project = root / "pyproject.toml"
    tools = tomllib.loads(project.read_text(encoding="utf-8"))["tool"] if project.exists() else {}
    contracts = tools.get("importlinter", {}).get("contracts", [])
    return next((contract for contract in contracts if contract["type"] == "layers"), {})


def _imported(tree: ast.Module, known: Mapping[str, object]) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("fleetsim").lstrip(".") for alias in node.names if _ours(alias.name)}
        elif isinstance(node, ast.ImportFrom) and node.module and _ours(node.module):
            base = node.module.removeprefix("fleetsim").lstrip(".")
            for alias in node.names:
                below = f"{base}.{alias.name}".lstrip(".")
                names.add(below if below in known else base)
    return names & set(known)


def _ours(module: str) -> bool:
    return module == "fleetsim" or module.startswith("fleetsim.")


def circles(found: Mapping[str, Source]) -> list[tuple[str, ...]]:
    """Groups of files that import each other, directly or through others (strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(found[name].imports):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            group = tuple(sorted(stack[at:]))
            del stack[at:]
            if len(group) > 1:
                groups.append(group)

    for name in sorted(found):
        if name not in index:
            visit(name)
    return groups


def layers(root: Path) -> list[list[str]]:
    """The floors from the top down, as the import contract of pyproject.toml has them; each with its rooms."""
    floors = _layers_contract(root)["layers"]
    return [[room.strip().removeprefix("fleetsim.") for room in floor.split("|")] for floor in floors]


def arrows(found: Mapping[str, Source]) -> Counter[tuple[str, str]]:
    """(room, room that it imports) -> how many imports of files there are; the package's own file is left out."""
    return Counter(
        (source.room, found[other].room)
        for source in found.values()
        for other in source.imports
        if source.name and other and source.room != found[other].room
    )


def upward(found: Mapping[str, Source], floors: Iterable[Iterable[str]]) -> list[tuple[str, str]]:
    """Imports from a floor to one above it, or to a neighbour on the same floor: (file, file)."""
    at = {room: i for i, floor in enumerate(floors) for room in floor}
    return sorted(
        (source.name, other)
        for source in found.values()
        for other in source.imports
        if source.room in at and found[other].room in at and source.room != found[other].room
        if at[source.room] >= at[found[other].room]
    )


def functions(found: Mapping[str, Source]) -> Iterator[tuple[Source, str, int]]:
    """(file, function, lines of code without its docstring) of every function."""
    for source in found.values():
        for node in ast.walk(source.tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                first, last = (body[0].lineno, body[-1].end_lineno or 0) if body else (0, -1)
                head = node.body[0].lineno - node.lineno
                yield source, node.name, last - first + 1 + head


def classes_of_one_name(found: Mapping[str, Source]) -> dict[str, list[str]]:
    """Names that more than one class bears, and the files that hold them; classes inside of others do not count."""
    files: dict[str, list[str]] = {}
    for source in found.values():
        for node in _at_import(source.tree):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, []).append(source.name)
    return {name: held for name, held in sorted(files.items()) if len(held) > 1}


def _at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a file itself, under an `if` or a `try` as well, and in no class or function."""
    for child in ast.iter_child_nodes(node):
        yield child
        if isinstance(child, (ast.If, ast.Try, ast.ExceptHandler, ast.With)):
            yield from _at_import(child)


def files_that_name(found: Mapping[str, Source], word: str) -> int:
    """Files outside the rooms of TRANSLATORS that hold the word as a text of its own."""
    return sum(
        any(isinstance(n, ast.Constant) and n.value == word for n in ast.walk(source.tree))
        for source in found.values()
        if source.room not in TRANSLATORS
    )


def figures(root: Path, laws: Iterable[str]) -> dict[str, str]:
    """What is measured of a checkout, as texts by what it is."""
    found = sources(root)
    long = [(s, name, n) for s, name, n in functions(found) if n > LONG_FUNCTION]
    commands = [name for s, name, n in functions(found) if s.room == "cli" and n > LONG_COMMAND]
    named = {law: files_that_name(found, law) for law in laws}
    return {
        "Python files": str(len(found)),
        "lines": f"{sum(s.lines for s in found.values()):,}",
        "lines of the median file": f"{median(s.lines for s in found.values()):.0f}",
        f"functions over {LONG_FUNCTION} lines": str(len(long)),
        f"functions of `cli` over {LONG_COMMAND} lines": str(len(commands)),
        "class names that stand in more than one file": str(len(classes_of_one_name(found))),
        "import circles": str(len(circles(found))),
        "imports against the floors": str(len(upward(found, layers(root)))),
        "files that name an admission law (most, all laws together)": f"{max(named.values())}, {sum(named.values())}",
    }
