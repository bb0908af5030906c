"""Chromium, without a window, and the tabs in which scenarios look at the page.

Playwright drives it, on a loop in a thread of its own: its sync interface would make the thread of
the scenarios one that runs a loop. It is there for the length of a feature, so that no later
feature forks a process with its threads.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from behave.model import Scenario

from support.concurrency.waiting import LIMIT

__all__ = ["Tab", "missing", "new_tab", "start_for", "stop"]

T = TypeVar("T")
NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
# Of what a tab sees, in the page itself, before any script of it.
WATCH = """
window.violations = [];
window.longTasks = [];
addEventListener("securitypolicyviolation", (event) => {
  violations.push(`${event.violatedDirective} ${event.blockedURI}`);
});
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) longTasks.push(entry.duration);
}).observe({ entryTypes: ["longtask"] });
"""

# Of the registry, by the names that the page gives them.
FIGURES = """Object.fromEntries(
  [...document.querySelectorAll("#registry-list > div")].map((div) =>
    [div.children[0].textContent, div.children[1].textContent]))"""
WAIT = """new Promise((resolve) => {
  const look = () => (CONDITION) ? resolve() : requestAnimationFrame(look);
  look();
})"""
SNAPSHOTS = """new Promise((resolve) => {
  let left = COUNT;
  const events = new EventSource("api/events");
  events.addEventListener("snapshot", () => {
    if (--left > 0) return;
    events.close();
    requestAnimationFrame(() => requestAnimationFrame(resolve));
  });
})"""


def missing() -> str | None:
    """Why there is no browser, and how to get one; None if there is one."""
    if importlib.util.find_spec("playwright") is None:
        return "no Playwright: pip install --group browser (with pip 25.1 or later)"
    if _program() is None:
        return (
            "no Chromium: apt-get install chromium, or set RXLANGGRAPH_BROWSER to the path of one"
        )
    return None


def _program() -> str | None:
    chosen = os.environ.get("RXLANGGRAPH_BROWSER")
    return shutil.which(chosen) if chosen else next(filter(None, map(shutil.which, NAMES)), None)


class _Browser:
    """Chromium, and the thread with the loop of its driver."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="browser", daemon=True)
        self._thread.start()
        self._driver, self.chromium = self.run(self._launch())

    async def _launch(self) -> tuple[Any, Any]:
        from playwright.async_api import async_playwright

        driver = await async_playwright().start()
        # Root has no sandbox; the shared memory of containers is small.
        arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        chromium = await driver.chromium.launch(executable_path=_program(), args=arguments)
        return driver, chromium

    def run(self, work: Coroutine[Any, Any, T], seconds: float = LIMIT) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def close(self) -> None:
        self.run(self.chromium.close())
        self.run(self._driver.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(LIMIT)
        self.loop.close()


# The one that runs, if one does.
_running: list[_Browser] = []


def start_for(scenario: Scenario) -> None:
    """Start the browser if the scenario is tagged with it; skip the scenario if there is none."""
    if "browser" not in scenario.effective_tags:
        return
    why = missing()
    if why is not None:
        scenario.skip(why)
        print(f"{why}; not shown: {scenario.name}", file=sys.__stderr__)
    elif not _running:
        _running.append(_Browser())


def stop() -> None:
    """Stop it, if it runs. At the end of the feature."""
    while _running:
        _running.pop().close()


def new_tab(**options: Any) -> Tab:
    """Open a tab, with a profile of its own."""
    return Tab(_running[0], **options)


class Tab:
    """A tab, and what went wrong in it.

    Args:
        browser: Where it is.
        options: Of Playwright's ``new_context``: ``color_scheme``, ``viewport``, ...
    """

    def __init__(self, browser: _Browser, **options: Any) -> None:
        self._run = browser.run
        # What its console said that is an error; and what was asked for, as URLs.
        self.errors: list[str] = []
        self.requests: list[str] = []
        options = {"viewport": {"width": 1280, "height": 800}, **options}
        self.page = self._run(self._open(browser.chromium, options))

    async def _open(self, chromium: Any, options: dict[str, Any]) -> Any:
        self.context = await chromium.new_context(**options)
        await self.context.add_init_script(WATCH)
        page = await self.context.new_page()
        page.set_default_timeout(1000 * LIMIT)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, url: str) -> None:
        """Go there, and wait for the first snapshot."""
        self._run(self.page.goto(url, wait_until="load"))
        self.wait_for("document.querySelector('#name').textContent !== ''")

    def wait_for(self, expression: str, seconds: float = LIMIT) -> None:
        """Wait until an expression is true: it is looked at in each frame.

        Not by Playwright's own function, which the page's policy does not let evaluate anything.
        """
        self._run(self.page.evaluate(WAIT.replace("CONDITION", expression)), seconds)

    def wait_for_text(self, selector: str, *words: str) -> None:
        """Wait until the first element of a selector is seen, and has the words in its text."""
        for word in words:
            self._run(self.page.locator(selector).filter(has_text=word).first.wait_for())

    def evaluate(self, expression: str) -> Any:
        return self._run(self.page.evaluate(expression))

    def text(self, selector: str) -> str:
        return str(self._run(self.page.locator(selector).first.inner_text()))

    def texts(self, selector: str) -> list[str]:
        return list(self._run(self.page.locator(selector).all_inner_texts()))

    def attribute(self, selector: str, name: str) -> str:
        return str(self._run(self.page.locator(selector).first.get_attribute(name)))

    def figure(self, name: str) -> int:
        """A counter of the registry, as the page shows it."""
        text = self.evaluate(FIGURES)[name.replace("_", " ")]
        return int(text.replace(",", ""))

    def wait_for_figure(self, name: str, least: int, seconds: float = LIMIT) -> None:
        self.wait_for(f"Number(({FIGURES})['{name}'].replaceAll(',', '')) >= {least}", seconds)

    def wait_for_snapshots(self, count: int) -> None:
        """Wait until so many more have arrived, on a connection of its own."""
        self.evaluate(SNAPSHOTS.replace("COUNT", str(count)))

    def focused(self) -> str:
        """The name of what has the focus."""
        of = "document.activeElement"
        return str(self.evaluate(f"{of}.getAttribute('aria-label') ?? {of}.textContent"))

    def emulate(self, **media: Any) -> None:
        self._run(self.page.emulate_media(**media))

    def wait_for_count(self, selector: str, least: int) -> None:
        self._run(self.page.locator(selector).nth(least - 1).wait_for(state="attached"))

    def count(self, selector: str) -> int:
        return int(self._run(self.page.locator(selector).count()))

    def click(self, selector: str) -> None:
        self._run(self.page.locator(selector).first.click())

    def fill(self, selector: str, text: str) -> None:
        self._run(self.page.locator(selector).first.fill(text))

    def press(self, *keys: str) -> None:
        for key in keys:
            self._run(self.page.keyboard.press(key))

    def type(self, text: str) -> None:
        self._run(self.page.keyboard.type(text))

    def fulfil(self, pattern: str, **response: Any) -> None:
        """Answer requests to a URL in the browser itself."""

        async def answer(route: Any) -> None:
            await route.fulfill(**response)

        self._run(self.page.route(pattern, answer))

    def pass_on(self, pattern: str) -> None:
        """Ask the server for it again."""
        self._run(self.page.unroute(pattern))

    def screenshot(self) -> bytes:
        """What is on the screen, as PNG."""
        return bytes(self._run(self.page.screenshot()))

    def close(self) -> None:
        self._run(self.context.close())


if __name__ == "__main__":  # for nox, which says what was not shown
    if (reason := missing()) is not None:
        sys.stdout.write(f"{reason}\n")
