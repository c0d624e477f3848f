"""Every metric that a framework's code logs is mapped, or listed as not used with the reason."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from fleetsim.history.step_logs.frameworks import BY_NAME, FRAMEWORKS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))
from make_log_keys import Spec, keys_of

ROOT = Path(__file__).parents[2]
TABLES = sorted((Path(__file__).parent / "log_keys").glob("*.tsv"))


def _keys(table: Path) -> list[str]:
    lines = table.read_text().splitlines()
    assert re.fullmatch(r"# [\w.-]+/[\w.-]+ [0-9a-f]{40} \d{4}-\d\d-\d\d", lines[0])
    return [line.split("\t")[0] for line in lines[1:]]


def _mapped(framework: str, key: str) -> bool:
    """Whether a metric of the framework's table is this key, or what the key becomes when it is put together: a prefix
    may still come before it, and {} stands for anything."""
    pattern = re.compile("(?:.+/)?" + ".*".join(map(re.escape, key.split("{}"))))
    return any(pattern.fullmatch(metric) for metric in BY_NAME[framework].metrics())


def not_read() -> Iterator[tuple[str, str, list[str]]]:
    """(framework, why, patterns of names) of the metrics that no column needs; of all frameworks: "all"."""
    text, name = (Path(__file__).parent / "log_keys" / "unused.txt").read_text(encoding="utf-8"), ""
    for line in re.sub(r"\n +", " ", text).splitlines():
        if line.startswith("["):
            name = line.strip("[]")
        elif not line.startswith("#"):
            why, patterns = line.split(" | ")
            yield name, why, patterns.split()


def _has_a_reason(framework: str, key: str) -> bool:
    """Whether `log_keys/unused.txt` says why nothing reads the metric."""
    mine = (patterns for name, _, patterns in not_read() if name in (framework, "all"))
    return any(fnmatchcase(key, p) for patterns in mine for p in patterns)


def test_there_is_a_table_of_every_framework() -> None:
    assert {t.stem for t in TABLES} == {f.name for f in FRAMEWORKS} - {"plain"}


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.stem)
def test_every_key_is_mapped_or_not_used_for_a_reason(table: Path) -> None:
    keys = _keys(table)
    assert len(keys) > 10
    forgotten = [key for key in keys if not _mapped(table.stem, key) and not _has_a_reason(table.stem, key)]
    assert not forgotten, f"{table.stem}: map them (frameworks.txt), or say why not (unused.txt): {forgotten}"


def test_a_new_key_would_be_noticed() -> None:
    assert not _mapped("verl", "fully_async/queue/waiting_groups")
    assert not _has_a_reason("verl", "fully_async/queue/waiting_groups")


def test_the_script_reads_keys_off_source(tmp_path: Path) -> None:
    """Dictionaries, timers, f-strings: of code that nobody else wrote."""
    (tmp_path / "loop.py").write_text(
        "def fit(metrics, timing, name, path):\n"
        "    with marked_timer('gen', timing):\n"
        "        metrics['queue/size'] = 3\n"
        "    metrics.update({f'env/{name}/mean': 1.0, 'plain': 2.0})\n"
        "    metrics['loss'] = open('some/file').read()\n"
        "    return {'Content-Type': 'application/json'}\n"
    )
    spec = Spec("o/r", ("*.py",), timers={"marked_timer": "timing_s/{}"}, stores={"metrics": "{}"})
    assert set(keys_of(spec, tmp_path)) == {"timing_s/gen", "queue/size", "env/{}/mean", "loss"}


def test_the_script_says_what_is_no_checkout(tmp_path: Path) -> None:
    call = [sys.executable, str(ROOT / "docs" / "make_log_keys.py"), "verl", str(tmp_path), "--commit", "x 2026-01-01"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "is it a checkout of verl-project/verl?" in done.stderr
