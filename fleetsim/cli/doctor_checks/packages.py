"""Which packages are installed, whether in a version that fleetsim works with, and what each extra enables."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

import fleetsim
from fleetsim.cli.doctor_checks.check import Check
from fleetsim.dataclass import dataclass

# What an extra is for, as a user would ask for it; those for developers are not listed.
ENABLES: Mapping[str, str] = {
    "prometheus": "replay --prometheus, watch, dashboard --check-against URL, history tables",
    "gpu": "calibrate --model (on a GPU)",
    "server": "calibrate --url, watch's export",
    "report": "pages: --html of size, simulate, split, replay, compare, validate, profile show",
    "aiconfigurator": "calibrate --from aiconfigurator:SYSTEM",
    "parquet": "simulate --parquet, sweep --out FILE.parquet, .parquet histories",
    "pandas": "to_pandas() in Python",
    "notebook": "docs/notebook.ipynb",
    "ray": "sweep --ray",
    "wandb": "replay --from wandb:ENTITY/PROJECT/RUN",
}
FOR_DEVELOPERS = frozenset({"test", "dev", "docs"})
_NEED = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_BOUND = re.compile(r"(>=|<=|==|<|>|!=|~=)\s*([\w.]+)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


@dataclass(frozen=True, slots=True)
class Need:
    """A package that fleetsim needs. extra: for what, None = always. bounds: (sign, version) pairs."""

    package: str
    bounds: tuple[tuple[str, str], ...]
    extra: str | None

    def allows(self, version: str) -> bool:
        """Whether a release is within the bounds; signs other than >= and < are not looked at."""
        found = _numbers(version)
        return all(
            found >= _numbers(limit) if sign == ">=" else found < _numbers(limit) if sign == "<" else True
            for sign, limit in self.bounds
        )

    def __str__(self) -> str:
        return self.package + ",".join(sign + limit for sign, limit in self.bounds)


def needs() -> tuple[Need, ...]:
    """Of the installed distribution; of a checkout that is not installed, its pyproject.toml."""
    project = Path(fleetsim.__file__).parents[1] / "pyproject.toml"
    if project.is_file():
        table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
        of_extras = table.get("optional-dependencies", {})
        return (*parsed(table["dependencies"], None), *(n for e, t in of_extras.items() for n in parsed(t, e)))
    return tuple(parsed(metadata.requires("fleetsim") or (), None))


def parsed(texts: Iterable[str], extra: str | None) -> list[Need]:
    """Requirements as they stand in metadata; those on fleetsim itself (its own extras) are left out."""
    found = []
    for text in texts:
        match = _NEED.match(text)
        if match is None or match[1] == "fleetsim":
            continue
        named = _EXTRA.search(match[3] or "")
        bounds = tuple((m[1], m[2]) for m in _BOUND.finditer(match[2]))
        found.append(Need(match[1], bounds, extra if named is None else named[1]))
    return found


def version_of(package: str) -> str | None:
    """The installed version, None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def required() -> Check:
    """The packages that every command needs."""
    found = {need: version_of(need.package) for need in needs() if need.extra is None}
    missing = [str(need) for need, version in found.items() if version is None]
    wrong = [
        f"{need.package} {version}, needs {','.join(s + v for s, v in need.bounds)}"
        for need, version in found.items()
        if version is not None and not need.allows(version)
    ]
    facts = {need.package: version for need, version in found.items()}
    if missing or wrong:
        text = "; ".join([*wrong, *(f"{name} is missing" for name in missing)])
        return Check("packages", "fault", text, "pip install --upgrade --force-reinstall fleetsim", facts)
    return Check("packages", "ok", ", ".join(f"{name} {version}" for name, version in facts.items()), None, facts)


def extras() -> list[Check]:
    """An entry for each extra that users have a use for."""
    by_extra: dict[str, list[Need]] = {}
    for need in needs():
        if need.extra is not None and need.extra not in FOR_DEVELOPERS:
            by_extra.setdefault(need.extra, []).append(need)
    return [_extra(name, wanted) for name, wanted in by_extra.items()]


def _extra(name: str, wanted: list[Need]) -> Check:
    use = ENABLES.get(name, "")
    found = {need: version_of(need.package) for need in wanted}
    facts = {"enables": use, "packages": {need.package: version for need, version in found.items()}}
    pip = f"pip install 'fleetsim[{name}]'"
    wrong = [f"{n.package} {v}, needs {n}" for n, v in found.items() if v is not None and not n.allows(v)]
    missing = [n.package for n, v in found.items() if v is None]
    if wrong:
        return Check(f"extra {name}", "warning", f"{'; '.join(wrong)} (for {use})", f"{pip} --upgrade", facts)
    if missing:
        return Check(f"extra {name}", "info", f"not installed: {', '.join(missing)} (for {use})", pip, facts)
    there = ", ".join(f"{need.package} {version}" for need, version in found.items())
    return Check(f"extra {name}", "ok", f"{use}: {there}", None, facts)


def _numbers(version: str) -> tuple[int, ...]:
    """ "0.61.2rc1" -> (0, 61, 2): enough for bounds that are whole releases; zeros at the end do not count."""
    numbers = [int(m[0]) if (m := re.match(r"\d+", part)) else 0 for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
