"""Debian's headless Chromium: the page as a visitor sees it, and all complaints of the browser."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request, ViewportSize, sync_playwright

from support.waiting import WAIT_SECONDS

CHROMIUM = shutil.which("chromium") or ""
MISSING = "there is no chromium (Debian: make browser)"
"""Reason why a browser test is skipped; never in CI."""
PHONE: ViewportSize = {"width": 375, "height": 740}
DESK: ViewportSize = {"width": 1280, "height": 900}


def require_chromium() -> None:
    """Skip the test without a browser; fail in CI."""
    if not CHROMIUM:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)


@dataclass
class Window:
    """Page, with the errors on it."""

    page: Page
    hosts: set[str] = field(default_factory=set)
    """Hosts that it has sent requests to."""
    complaints: list[str] = field(default_factory=list)
    """Messages of the console, violations of the content policy included."""
    expected: tuple[str, ...] = ()
    """Parts of complaints that the test provokes."""

    def watch(self) -> None:
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", self._note)

    def faults(self) -> list[str]:
        return [c for c in self.complaints if not any(part in c for part in self.expected)]

    def _note(self, request: Request) -> None:
        self.hosts.add(request.url.split("/")[2] if "//" in request.url else request.url[:40])


@contextmanager
def chromium(playwright: Playwright) -> Iterator[Browser]:
    """Start Chromium; as root the sandbox is not available, and only our own page is opened."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*options, "--disable-dev-shm-usage"])
    try:
        yield browser
    finally:
        browser.close()


@contextmanager
def started() -> Iterator[Browser]:
    """Start a browser."""
    with sync_playwright() as playwright, chromium(playwright) as browser:
        yield browser


@contextmanager
def opened(
    browser: Browser, url: str, size: ViewportSize = DESK, dark: bool = False, token: str = ""
) -> Iterator[Window]:
    """Open a page at an address, logged in if there is a token."""
    scheme = "dark" if dark else "light"
    context: BrowserContext = browser.new_context(
        viewport=size,
        color_scheme=scheme,  # type: ignore[arg-type]
        device_scale_factor=2 if size == PHONE else 1,
        timezone_id="UTC",
        locale="en-GB",
    )
    context.set_default_timeout(1000 * WAIT_SECONDS)
    try:
        window = Window(context.new_page())
        window.watch()
        window.page.goto(f"{url}/#token={token}" if token else f"{url}/")
        yield window
    finally:
        context.close()
