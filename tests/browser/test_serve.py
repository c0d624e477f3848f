"""`fleetsim serve` in a Chromium: a slider is moved, a link shared, a file sent, a wrong value said."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.browser.seen import Browser

pytestmark = pytest.mark.usefixtures("chromium")
_ANSWER = "document.querySelector('#tiles').children.length > 3 && !document.body.classList.contains('waiting')"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server of ours."""
    words = [sys.executable, "-m", "fleetsim", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        found = re.fullmatch(r"open (http://\S+)\n", server.stderr.readline())
        assert found is not None
        yield found[1]
        server.terminate()
        assert server.wait(20) == 0


def _until(tab: Any, holds: str) -> None:
    """Waits until an expression holds. The page's own policy forbids the browser to wait for one."""
    for _ in range(600):
        if tab.evaluate(holds):
            return
        tab.wait_for_timeout(100)
    raise AssertionError(holds)


def _count(tab: Any) -> int:
    _until(tab, _ANSWER)
    return int(tab.inner_text("#answer").split()[0])


def test_a_slider_is_moved_and_the_link_shared(browser: Browser, url: str, screenshots: Path) -> None:
    def do(tab: Any) -> tuple[list[str], int, int, str, list[str]]:
        errors: list[str] = []
        asked: list[str] = []
        tab.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
        tab.on("pageerror", lambda e: errors.append(str(e)))
        tab.on("request", lambda r: asked.append(r.url))
        tab.goto(f"{url}#trainer_step_s=30")
        before = _count(tab)
        tab.evaluate("""() => { const s = document.querySelector('input[name=len-slider]');
            s.value = 800; s.dispatchEvent(new Event('input', { bubbles: true })); }""")
        _until(tab, f"location.hash.includes('len=') && {_ANSWER}")
        after = _count(tab)
        _until(tab, "document.querySelector('#lines').innerText.includes('assumed')")
        tab.screenshot(path=screenshots / "serve.png", full_page=True)
        assert tab.inner_text("#command").startswith("fleetsim size --len ")
        return errors, before, after, tab.url, asked

    errors, before, after, link, asked = browser.used(do)
    assert errors == []
    assert after > before, "responses of 16,000 tokens need more instances"
    assert all(one.startswith(url) for one in asked), "the page asks nobody else"

    def shared(tab: Any) -> tuple[int, str, int]:
        tab.goto(link)
        found = _count(tab), tab.input_value("input[name=trainer_step_s]")
        tab.screenshot(path=screenshots / "serve-phone.png", full_page=True)
        return *found, tab.evaluate("document.documentElement.scrollWidth")

    assert browser.used(shared, phone=True) == (after, "30", 390)


def test_a_link_keeps_all_that_it_carries(browser: Browser, url: str) -> None:
    carried = {
        "turns": "4",
        "tool_s": "2",
        "sandboxes": "32",
        "sandbox_start_s": "3",
        "stations.tools.calls_per_s": "9",
    }

    def do(tab: Any) -> None:
        tab.goto(f"{url}#{urlencode(carried)}")
        _count(tab)
        assert [tab.input_value(f"input[name={name}]") for name in ("turns", "tool_s", "sandboxes")] == ["4", "2", "32"]
        assert "--set stations.tools.calls_per_s=9" in tab.inner_text("#command")
        tab.fill("input[name=turns]", "geometric:3")
        tab.dispatch_event("input[name=turns]", "change")
        _until(tab, f"location.hash.includes('geometric') && {_ANSWER}")
        assert "--turns geometric:3" in tab.inner_text("#command")
        tab.goto(f"{url}#job=no")
        _until(tab, "document.querySelector('#read').innerText.includes('damaged')")

    browser.used(do)


def test_a_wrong_value_and_a_file(browser: Browser, url: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python3 -m verl.trainer.main_ppo data.train_batch_size=64 actor_rollout_ref.rollout.n=16 \\\n"
        " actor_rollout_ref.model.path=Qwen/Qwen3-8B trainer.nnodes=2 trainer.n_gpus_per_node=8\n"
    )

    def do(tab: Any) -> None:
        tab.goto(f"{url}#gpu=H1000")
        tab.wait_for_selector("#wrong:not([hidden])")
        assert "H100" in tab.inner_text("#wrong")
        tab.select_option("#framework", "verl")
        tab.set_input_files("#file", script)
        _until(tab, "document.querySelector('input[name=batch]').value === '1024'")
        assert _count(tab) > 0
        assert "Qwen3-8B" in tab.input_value("input[name=model]")
        assert "#job=" in tab.url

    browser.used(do)
