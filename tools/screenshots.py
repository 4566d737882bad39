"""Photograph every page of the built book: desktop and phone width, light and dark, and a page that
says something in one dialect of NKI in each of them.

    python tools/screenshots.py [PAGE ...]      default: every page of _build/html

Pictures go to _build/shots. Pages that scroll sideways, log an error or ask for something from
the network are listed, and then the exit status is 1. Needs Chromium (Debian: apt-get install
chromium), driven through its DevTools protocol.
"""

import argparse
import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from websocket import create_connection

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build/html"
SHOTS = ROOT / "_build/shots"
WIDTHS = {1280: 900, 390: 844}  # viewport width and height in CSS pixels
MODES = ("light", "dark")
MAX_HEIGHT = 16000  # pixels; Chromium's largest texture is 16384
TIMEOUT = 60  # seconds for one answer of the browser

FLAGS = [
    "--headless",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
]

# The innermost elements that stick out on the right of a page that scrolls sideways.
OVERFLOW = """
(() => {
  const width = document.documentElement.clientWidth;
  if (document.scrollingElement.scrollWidth <= width) return [];
  const out = [...document.body.querySelectorAll('*')].filter(
    e => e.getBoundingClientRect().right > width + 1);
  const inner = out.filter(e => ![...e.children].some(c => out.includes(c)));
  const name = e => `<${e.localName} class="${e.getAttribute('class') || ''}">`
    + ` ${Math.round(e.getBoundingClientRect().right)}px: ${e.textContent.trim().slice(0, 40)}`;
  return [`scrolls to ${document.scrollingElement.scrollWidth}px`, ...inner.slice(0, 5).map(name)];
})()
"""


# Fonts are there, and the sidebars have slid to where they belong.
SETTLED = """
document.fonts.ready
  .then(() => Promise.allSettled(document.getAnimations().map(a => a.finished)))
  .then(() => true)
"""


class Browser:
    """One headless Chromium with one tab. Use as a context manager."""

    def __init__(self, executable: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        flags = [*FLAGS, f"--user-data-dir={self._profile.name}"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            flags.append("--no-sandbox")  # Chromium refuses root otherwise
        self._process = subprocess.Popen(
            [executable, *flags, "about:blank"], stderr=subprocess.PIPE, text=True
        )
        self._socket = create_connection(self._endpoint(), timeout=TIMEOUT)
        self._ids = itertools.count(1)
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def _endpoint(self) -> str:
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if match := re.search(r"DevTools listening on (ws://\S+)", line):
                return match[1]
        raise RuntimeError("Chromium did not start:\n" + "".join(lines))

    def _receive(self) -> dict[str, Any]:
        message = json.loads(self._socket.recv())
        if "method" in message:
            self.events.append(message)
        return message

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a DevTools method and return its result; events that arrive are kept."""
        request = {"id": next(self._ids), "method": method, "params": params}
        if self._session:
            request["sessionId"] = self._session
        self._socket.send(json.dumps(request))
        while True:
            message = self._receive()
            if message.get("id") == request["id"]:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]

    def _resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def open(self, url: str, width: int, height: int, mode: str, settle: bool = True) -> None:
        """Load `url` and wait until it and its pictures are there.

        Without scripts nothing tells when fonts are there: pass `settle=False`.
        """
        self.events.clear()
        self._resize(width, height)
        features = {"prefers-color-scheme": mode, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()
        if settle:
            self.evaluate(SETTLED)

    def evaluate(self, expression: str) -> Any:
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def screenshot(self, path: Path, width: int) -> None:
        """Write the whole page, not only the window, as PNG; below MAX_HEIGHT goes on in -2.png."""
        height = self.evaluate("document.scrollingElement.scrollHeight")
        # A window as tall as the page: capturing beyond the window shifts what is fixed in it.
        self._resize(width, min(height, MAX_HEIGHT))
        for part in range(-(-height // MAX_HEIGHT)):
            self.evaluate(f"window.scrollTo(0, {part * MAX_HEIGHT})")
            self.evaluate(SETTLED)
            shot = self.call("Page.captureScreenshot")
            name = f"{path.stem}-{part + 1}.png" if part else path.name
            path.with_name(name).write_bytes(base64.b64decode(shot["data"]))

    def complaints(self, site: str | None = None) -> list[str]:
        """Return errors that the page logged, and requests it sent, but those to a site."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
                found.append(f"logs: {params['entry']['text']} {params['entry'].get('url', '')}")
            elif event["method"] == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                text = details.get("exception", {}).get("description") or details["text"]
                found.append(f"throws: {text.splitlines()[0]} {details.get('url', '')}")
            elif event["method"] == "Network.requestWillBeSent":
                url = params["request"]["url"]
                own = site is not None and url.startswith(site)
                if url.startswith(("http:", "https:", "ws:", "wss:")) and not own:
                    found.append(f"asks the network for {url}")
        return list(dict.fromkeys(found))

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(timeout=TIMEOUT)
        self._profile.cleanup()


def find_chromium() -> str | None:
    """The browser of this machine; None, and a message, where there is none."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print(
            "error: chromium is not on PATH; on Debian: apt-get install chromium", file=sys.stderr
        )
    return chromium


def photograph(browser: Browser, page: Path) -> tuple[int, list[str]]:
    """Photograph one page in every width, mode and dialect; return how many pictures there are, and
    what is wrong with it."""
    name = page.relative_to(SITE).with_suffix("").as_posix().replace("/", "-")
    views = list(itertools.product(dialects_of(page), WIDTHS.items(), MODES))
    found = []
    for dialect, (width, height), mode in views:
        browser.open(f"{page.as_uri()}?dialect={dialect}", width, height, mode)
        browser.screenshot(SHOTS / f"{name}-{dialect}-{width}-{mode}.png", width)
        for problem in [*browser.evaluate(OVERFLOW), *browser.complaints()]:
            found.append(f"  {dialect} {width}px {mode}: {problem}")
    return len(views), found


def dialects_of(page: Path) -> tuple[str, ...]:
    """The dialects to show a page in, as `?dialect=` names them."""
    says_in_one = re.search(r'class="[^"]*dialect-(nki|neuronxcc)\b', page.read_text("utf-8"))
    return ("neuronxcc", "nki") if says_in_one else ("neuronxcc",)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help="for example notebooks/add_torch")
    arguments = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        return 2
    pages = [SITE / f"{page.removesuffix('.html')}.html" for page in arguments.pages]
    pages = pages or [p for p in sorted(SITE.glob("*/*.html")) if "_static" not in p.parts]
    missing = [str(page) for page in pages if not page.is_file()]
    if missing or not pages:
        print(f"error: not built: {' '.join(missing) or SITE}; run `make book`", file=sys.stderr)
        return 2
    SHOTS.mkdir(parents=True, exist_ok=True)
    pictures = problems = 0
    with Browser(chromium) as browser:
        for page in pages:
            taken, found = photograph(browser, page)
            pictures += taken
            problems += len(found)
            print(f"{page.relative_to(SITE)}: {len(found) or 'no'} findings", flush=True)
            for finding in found:
                print(finding)
    print(f"==> {pictures} pictures in {SHOTS.relative_to(ROOT)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
