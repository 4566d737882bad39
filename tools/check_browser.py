"""Open every page of the built book in Chromium, and use it as readers do.

    python tools/check_browser.py [PAGE ...]      default: every page of _build/html

On a desktop in each dialect, and on a phone: nothing is logged as an error or asked of the
network, nothing is wider than the screen, no text is smaller than 9 pixels. On a phone no table or
printed text scrolls sideways: only code and graphs do. Then each choice among pictures shows
another one when it is clicked, what moves does when Play is pressed, the search finds what readers
look for, a page has its text and its pictures with scripts switched off, and a chosen dialect of
NKI hides the other on every page. Prints one line a finding, and exits 1 if there is any.
"""

import argparse
import json
import sys
import time
import urllib.parse
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from screenshots import OVERFLOW, SITE, WIDTHS, Browser, find_chromium

# What readers look for, and the page that is to come first.
SEARCHES = {
    "activation_reduce": "book/api_neuronxcc_isa.html",
    "nl.ds": "book/api_neuronxcc_language.html",
    "nl.load_transpose2d": "book/api_neuronxcc_language.html",
    "how do I time a kernel": "book/timeline.html",
    "mask": "book/glossary.html",  # which leads to the patterns
    "group norm": "book/patterns.html",
}
PATIENCE = 20  # seconds for the search to answer
SMALLEST = 9  # pixels
DESKTOP, PHONE = WIDTHS  # pixels

# Texts that are drawn smaller than SMALLEST, with the scale of the picture that they are in.
SMALL_TEXT = """
(() => {
  const found = [];
  const walker = document.createTreeWalker(
    document.querySelector('main') || document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), e = walker.currentNode.parentElement;
    if (!text || !e.getClientRects().length) continue;
    // A card that is a link as a whole has its text for readers of screens, of no size.
    if (e.closest('script, style, title, math, .visually-hidden, .sd-hide-link-text')) continue;
    if (getComputedStyle(e).visibility === 'hidden') continue;
    let scale = 1;
    if (e.ownerSVGElement) { const m = e.getScreenCTM(); scale = Math.hypot(m.a, m.b); }
    const size = parseFloat(getComputedStyle(e).fontSize) * scale;
    if (size < SMALLEST - 0.05) found.push(`${size.toFixed(1)}px: ${text.slice(0, 40)}`);
  }
  return found;
})()
""".replace("SMALLEST", str(SMALLEST))

# Tables and texts of outputs that are wider than their place.
SIDEWAYS = """
[...document.querySelectorAll('article table, .cell_output pre')]
  .filter(e => e.getClientRects().length && e.scrollWidth > e.clientWidth + 1)
  .map(e => `<${e.localName}> of ${e.scrollWidth} pixels: ${e.textContent.trim().slice(0, 40)}`)
"""

# Clicks every button of every choice; returns those that show no panel of their own.
CHOICES = """
[...document.querySelectorAll('.nki-choice')].flatMap(choice => {
  if (!choice.getClientRects().length) return [];  // of the other dialect
  const panels = [...choice.querySelectorAll(':scope > .nki-panel')];
  return [...choice.querySelectorAll(':scope > input')].flatMap((input, number) => {
    choice.querySelector(`label[for="${input.id}"]`).click();
    const shown = panels.filter(panel => panel.getClientRects().length);
    return shown.length === 1 && shown[0] === panels[number]
      ? [] : [`choice ${input.id}: ${shown.length} panels are shown`];
  });
})
"""

SEEN = """
[...document.querySelectorAll('.nki-moving')].filter(e => e.getClientRects().length).map(
  moving => [...moving.querySelectorAll(':scope > .nki-stack > *')].map(
    frame => getComputedStyle(frame).visibility).join())
"""
PLAY = "document.querySelectorAll('.nki-moving > label').forEach(label => label.click())"

FIRST_RESULT = """
(() => { const a = document.querySelector('#search-results li a'); return a && a.href; })()
"""

WITHOUT_SCRIPTS = """
(() => {
  const article = document.querySelector('article');
  if (!article || article.innerText.trim().length < 200) return ['the page has no text'];
  return [...article.querySelectorAll('figure.nki-figure svg')]
    .filter(svg => !svg.closest('.nki-panel, details') && !svg.getClientRects().length)
    .map(svg => `not shown: ${svg.getAttribute('aria-label').slice(0, 60)}`)
    .concat([...article.querySelectorAll('.dialect, [class*="tag_dialect-"]')]
      .filter(e => !e.closest('details') && !e.getClientRects().length)
      .map(e => `not shown, of one dialect: ${e.textContent.trim().slice(0, 60)}`));
})()
"""


# The pages about both dialects, which readers of either see whole.
ABOUT_BOTH = ("notebooks/dialects.html", "notebooks/moving.html")
OTHER = {"neuronxcc": "nki", "nki": "neuronxcc"}

# When the choice was put on <html>: before there is a body, nothing of the other has been drawn.
WATCH_CHOICE = """
new MutationObserver(() => {
  if (document.documentElement?.dataset.dialect && window.nkiChosenEarly === undefined)
    window.nkiChosenEarly = document.body === null;
}).observe(document, {attributes: true, subtree: true, childList: true});
"""

# What is shown of the other dialect: marked parts, and cells that import it.
SHOWN = """
(([other, imported]) => {
  const seen = e => e.getClientRects().length > 0;
  const marked = document.querySelectorAll(`.dialect-${other}, .tag_dialect-${other}`);
  const inputs = document.querySelectorAll('.cell_input');
  return {
    chosen: document.documentElement.dataset.dialect,
    early: window.nkiChosenEarly === true,
    inBoth: document.querySelector('[class*="tag_dialect-"]') !== null,
    shown: [...[...marked].filter(seen),
            ...[...inputs].filter(e => seen(e) && new RegExp(imported, 'm').test(e.innerText))]
      .map(e => e.innerText.trim().slice(0, 50)),
  };
})
"""
IMPORTED = {"neuronxcc": r"^(import|from) neuronxcc[.]nki", "nki": r"^import nki([.]|$|\\s)"}


def check_page(browser: Browser, page: Path) -> Iterator[str]:
    """Yield what is wrong with one page on a phone, and when its pictures are clicked."""
    browser.open(page.as_uri(), PHONE, WIDTHS[PHONE], "light")
    for problem in check_layout(browser):
        yield f"{PHONE}px: {problem}"
    for sideways in browser.evaluate(SIDEWAYS):
        yield f"{PHONE}px: scrolls sideways: {sideways}"
    yield from browser.evaluate(CHOICES)
    yield from check_moving(browser)


def check_layout(browser: Browser, site: str | None = None) -> Iterator[str]:
    """Yield what is too wide, too small, logged, or asked of another place than the site."""
    yield from browser.evaluate(OVERFLOW)
    yield from browser.complaints(site)
    for text in browser.evaluate(SMALL_TEXT)[:3]:
        yield f"smaller than {SMALLEST} pixels: {text}"


def check_moving(browser: Browser) -> Iterator[str]:
    """Yield what does not move when Play is pressed."""
    still = browser.evaluate(SEEN)
    if not still:
        return
    browser.evaluate(PLAY)
    seen = [{frames} for frames in still]
    for _ in range(20):
        time.sleep(0.15)
        for frames, now in zip(seen, browser.evaluate(SEEN), strict=True):
            frames.add(now)
    for number, frames in enumerate(seen):
        if len(frames) < 3:
            yield f"picture {number} that moves shows {len(frames)} states in three seconds"


def check_search(browser: Browser, site: str) -> Iterator[str]:
    """Yield the searches whose first result is another page of the site at this address."""
    for query, wanted in SEARCHES.items():
        if not (SITE / wanted).is_file():
            yield f"search for {query!r}: there is no {wanted}"
            continue
        url = f"{site}/search.html?q={urllib.parse.quote_plus(query)}"
        browser.open(url, DESKTOP, WIDTHS[DESKTOP], "light")
        deadline = time.monotonic() + PATIENCE
        while (found := browser.evaluate(FIRST_RESULT)) is None and time.monotonic() < deadline:
            time.sleep(0.2)
        # The list is sorted before its first entry is shown.
        if found is None or wanted not in found:
            yield f"search for {query!r}: first comes {found}, not {wanted}"


def check_dialects(browser: Browser, pages: list[Path], site: str) -> Iterator[str]:
    """Yield what a reader on a desktop who has chosen a dialect sees amiss, or of the other."""
    width, height = DESKTOP, WIDTHS[DESKTOP]
    urls = {page: f"{site}/{page.relative_to(SITE).as_posix()}" for page in pages}
    if not urls:
        return
    watch = browser.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH_CHOICE)
    for chosen, other in OTHER.items():
        look = f"({SHOWN})({json.dumps([other, IMPORTED[other]])})"
        browser.open(f"{next(iter(urls.values()))}?dialect={chosen}", width, height, "light")
        for page, url in urls.items():
            browser.open(url, width, height, "light")
            found = browser.evaluate(look)
            name = page.relative_to(SITE).as_posix()
            for problem in check_layout(browser, site):
                yield f"{name}: {width}px, {chosen}: {problem}"
            if found["chosen"] != chosen:
                yield f"{name}: {chosen} was chosen, and is forgotten"
            if not found["early"]:
                yield f"{name}: the choice is there only when something was drawn"
            if found["inBoth"] and name not in ABOUT_BOTH:
                for text in found["shown"]:
                    yield f"{name}: {chosen} is chosen, shown is {text!r}"
        browser.evaluate(f"document.querySelector('[data-choose-dialect={other}]').click()")
        if browser.evaluate("document.documentElement.dataset.dialect") != other:
            yield f"{name}: the button {other} does nothing"
    browser.call("Page.removeScriptToEvaluateOnNewDocument", identifier=watch["identifier"])


def serve() -> str:
    """Serve the site on this machine, since a search reads pages that it finds; its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def check_without_scripts(browser: Browser, pages: list[Path]) -> Iterator[str]:
    """Yield what is missing when scripts are switched off."""
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    for page in pages:
        browser.open(page.as_uri(), DESKTOP, WIDTHS[DESKTOP], "light", settle=False)
        for problem in browser.evaluate(WITHOUT_SCRIPTS):
            yield f"{page.relative_to(SITE)} without scripts: {problem}"
    browser.call("Emulation.setScriptExecutionDisabled", value=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help="for example notebooks/add_torch")
    arguments = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        return 2
    pages = [SITE / f"{page.removesuffix('.html')}.html" for page in arguments.pages]
    pages = pages or [p for p in sorted(SITE.glob("*/*.html")) if p.parent.name[0] != "_"]
    if missing := [str(page) for page in pages if not page.is_file()]:
        print(f"error: not built: {' '.join(missing)}; run `make book`", file=sys.stderr)
        return 2
    count = 0

    def report(findings: Iterator[str]) -> None:
        nonlocal count
        for finding in findings:
            count += 1
            print(f"  {finding}", flush=True)

    with Browser(chromium) as browser:
        for page in pages:
            print(page.relative_to(SITE), flush=True)
            report(check_page(browser, page))
        report(check_without_scripts(browser, pages))
        site = serve()
        report(check_dialects(browser, pages, site))
        if not arguments.pages:
            report(check_search(browser, site))
    print(f"==> opened {len(pages)} pages in Chromium: {count or 'no'} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
