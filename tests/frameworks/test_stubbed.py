"""Scripts in the manner of those that the frameworks ship, in a checkout, start against stubs what is read of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.frameworks.bash import there_is_bash
from tests.frameworks.stubbed import SCRIPTS, Jail, main, outcome_of

PARTS = (Path(__file__).parent / "launch/stubbed.txt").read_text().split("=== ")[1:]
FILES = {about.split()[1]: (about.split()[0], text) for about, _, text in (part.partition("\n") for part in PARTS)}


def there_is_a_jail() -> bool:
    """Whether a folder can be made the root of processes with a network of their own."""
    if not (there_is_bash() and shutil.which("unshare") and shutil.which("chroot") and os.geteuid() == 0):
        return False
    tried = subprocess.run(["unshare", "--net", "--pid", "--fork", "chroot", "/", "true"], check=False)
    return tried.returncode == 0


pytestmark = pytest.mark.skipif(not there_is_a_jail(), reason="NOT RUN AGAINST STUBS: no bash 5, no root or no unshare")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name, (_, text) in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "scripts"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def jail(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Jail:
    root = tmp_path_factory.mktemp("jail")
    for folder in (root, *root.parents[:2]):
        folder.chmod(0o755)
    return Jail(root, str(checkout))


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(SCRIPTS)])
def test_what_a_script_starts_is_what_is_read(name: str, jail: Jail) -> None:
    outcome = outcome_of(jail, name)
    assert outcome.verdict == FILES[name][0], outcome
    assert outcome.verdict != "host" or outcome.notes


def test_a_script_that_is_read_wrongly_differs(
    jail: Jail, monkeypatch: pytest.MonkeyPatch, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader that takes every variable's default for its value is found out."""
    monkeypatch.setattr("fleetsim.frameworks.shell_tests.holds", lambda shell, words: True)
    monkeypatch.setattr("fleetsim.frameworks.shell_branches.holds", lambda shell, words: True)
    assert outcome_of(jail, "hybrid/run_arrays.sh").verdict == "differs"
    main(str(checkout), ["run_arrays", "only_says"])
    said = capsys.readouterr().out
    assert said.startswith("differs: hybrid/run_arrays.sh\n")
    assert said.endswith("1 differs, 1 none\n")


def test_nothing_that_a_script_does_leaves_the_jail(jail: Jail, tmp_path: Path) -> None:
    """No file outside, none of root's within, no network, no program of this machine."""
    out = f"../../../../../..{tmp_path}"
    (jail.tree / "harm.sh").write_text(
        f"echo x > {tmp_path}/x\ncd {out}/y\nsource {out}/z\nrm -rf /work; echo x > /work/models/small.sh\n"
        "/bin/sleep 9\nkill -9 -1\nexec 3<>/dev/tcp/127.0.0.1/22 && python reached.py\npython done.py\n"
    )
    outcome_of(jail, "harm.sh")  # which is given the folders and files that it misses
    assert not list(tmp_path.iterdir())
    assert (jail.tree / "models/small.sh").read_text().startswith("MODEL_ARGS")
