"""Check a built site offline: links, anchors, images, origins of times, markup, network loads.

    python tools/check_book.py _build/html

Prints one line a finding, page by page, and exits 1 if there is any. Only what authors control
is read for markup: the article of a page without its code and outputs. Links, images and
scripts are checked on the whole page.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, NavigableString, Tag

from nkibook.plots.figure import ORIGINS, TIME_AXIS

# Text that a rendered page never shows: each is markup that did not parse.
MARKUP = {
    "a MyST role or directive": re.compile(r"\{[a-z][\w:+-]*\}\s*`|`{3,}|~{3,}\{"),
    "a colon fence": re.compile(r":{3,}"),
    "a formula": re.compile(r"\$\$|\\(?:frac|begin|mathrm|cdot|sqrt)\b"),
    "a Markdown link": re.compile(r"\[[^\]\n]+\]\([^)\n]+\)"),
    "a Markdown heading": re.compile(r"(?<!\S)#{2,6} "),
    "bold Markdown": re.compile(r"\*\*[^*\s][^*\n]*\*\*"),
    "a substitution": re.compile(r"\{\{.*?\}\}"),
    "a directive option": re.compile(r"(?<!\S):(?:alt|name|width|label|tags|class):"),
}

# Elements that load something when the page opens, and the attribute that says from where.
LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "link": "href",
}
LOADING_LINKS = {"stylesheet", "preload", "modulepreload", "icon", "shortcut", "manifest"}
CSS_LOAD = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])((?:https?:)?//[^'")\s]+)""")


# Shapes of drawings, nine tenths of all elements: nothing here is asked of them.
SHAPES = re.compile(r"<path\b[^>]*?(?:/>|>.*?</path>)", re.DOTALL)


class Site:
    """The pages of a built site, parsed once, with the anchors of each."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.pages: dict[Path, BeautifulSoup] = {}
        for path in sorted(self.root.rglob("*.html")):
            if "_static" not in path.relative_to(self.root).parts:
                text = SHAPES.sub("", path.read_text(encoding="utf-8"))
                self.pages[path] = BeautifulSoup(text, "html.parser")
        self.anchors = {
            path: {tag["id"] for tag in page.find_all(id=True)}
            | {tag["name"] for tag in page.find_all("a", attrs={"name": True})}
            for path, page in self.pages.items()
        }

    def resolve(self, page: Path, url: str) -> tuple[Path, str] | None:
        """Return the file and fragment that a local `url` on `page` means; None if external."""
        parts = urlsplit(url)
        if parts.scheme or parts.netloc:
            return None
        path = unquote(parts.path)
        target = page if not path else (page.parent / path).resolve()
        return target / "index.html" if target.is_dir() else target, unquote(parts.fragment)


def _external(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "ftp")


def check_links(site: Site, path: Path) -> Iterator[str]:
    """Yield what is wrong with the links of a page: missing files, missing anchors."""
    for tag in site.pages[path].find_all("a", href=True):
        found = site.resolve(path, tag["href"])
        if found is None or tag["href"] == "#":
            continue
        target, fragment = found
        if not target.is_file():
            yield f"broken link {tag['href']!r} ({tag.get_text(strip=True)[:40]!r})"
        elif fragment and target in site.anchors and fragment not in site.anchors[target]:
            yield f"no such anchor: {tag['href']!r} ({tag.get_text(strip=True)[:40]!r})"


def check_loads(site: Site, path: Path) -> Iterator[str]:
    """Yield loads that go to the network, or to a file that does not exist."""
    page = site.pages[path]
    for name, attribute in LOADS.items():
        for tag in page.find_all(name, attrs={attribute: True}):
            url = tag[attribute]
            if name == "link" and not LOADING_LINKS & set(tag.get("rel", [])):
                continue
            if _external(url):
                yield f"<{name}> loads from the network: {url}"
                continue
            found = site.resolve(path, url)
            if found is not None and not found[0].is_file():
                yield f"<{name}> loads a missing file: {url}"
    for style in [*page.find_all("style"), *page.find_all(style=True)]:
        text = style.get("style") if style.get("style") else style.get_text()
        for url in CSS_LOAD.findall(text):
            yield f"a style loads from the network: {url}"


def check_alternatives(page: BeautifulSoup) -> Iterator[str]:
    """Yield pictures without a text alternative. Pictures hidden from readers need none."""
    article = page.find("article") or page
    for tag in article.find_all(["img", "svg"]):
        hidden = tag.find_parent(attrs={"aria-hidden": "true"}) or tag.get("aria-hidden") == "true"
        if hidden:
            continue
        if tag.name == "img" and not (tag.get("alt") or "").strip():
            yield f"<img src={tag.get('src', '')[:60]!r}> has no alt text"
        elif tag.name == "img" and Path(urlsplit(tag["src"]).path).name in tag["alt"]:
            yield f"<img> has its file name for alt text: {tag['alt'][:60]!r}"
        if tag.name == "svg" and not (tag.get("aria-label") or tag.get("aria-labelledby")):
            title = tag.find("title", recursive=False)
            if title is None or not title.get_text(strip=True):
                yield "<svg> has no aria-label, aria-labelledby or <title>"


def check_times(page: BeautifulSoup) -> Iterator[str]:
    """Yield figures with a time axis that do not say where the times come from.

    The figure itself must say it: a drawing in its texts, an image in its text alternative.
    """
    article = page.find("article") or page
    for tag in article.find_all(["img", "svg"]):
        if tag.name == "svg":
            texts = [text.get_text(" ", strip=True) for text in tag.find_all("text")]
        else:
            texts = [tag.get("alt") or ""]
        label = next((text for text in texts if TIME_AXIS.search(text)), None)
        if label and not any(origin in " ".join(texts).lower() for origin in ORIGINS):
            yield f"a figure shows times and not whether {', '.join(ORIGINS)}: {label[:60]!r}"


NO_PROSE = {"pre", "code", "script", "style", "math", "svg"}
NO_PROSE_CLASSES = {"cell_output", "headerlink"}
BLOCKS = {"p", "li", "dt", "dd", "th", "td", "div", "figcaption"}


def _prose(tag: Tag) -> Iterator[str]:
    """Yield the text of an element, without code, formulas, drawings and outputs."""
    for child in tag.children:
        if isinstance(child, Tag):
            if child.name in NO_PROSE:
                yield " "
            elif not NO_PROSE_CLASSES & set(child.get_attribute_list("class")):
                yield from _prose(child)
                yield "\n" * (child.name in BLOCKS)
        elif type(child) is NavigableString:
            yield child


def check_article(page: BeautifulSoup) -> Iterator[str]:
    """Yield leftovers: markup that did not render, error boxes, tracebacks, an empty page."""
    article = page.find("article")
    if article is None:
        return
    for box in article.find_all(class_=["system-message", "system_message", "problematic"]):
        yield f"an error of the parser: {box.get_text(' ', strip=True)[:80]!r}"
    for output in article.find_all(class_=["output", "cell_output"]):
        if "Traceback (most recent call last)" in output.get_text():
            yield f"an output shows a traceback: {output.get_text(' ', strip=True)[:80]!r}"
    text = "".join(_prose(article))
    if len(text.split()) < 5:
        yield "the page has no text"
    for what, pattern in MARKUP.items():
        match = pattern.search(text)
        if match:
            line = text[max(0, match.start() - 20) : match.end() + 20].replace("\n", " ")
            yield f"{what} did not render: {line!r}"


def check_css(site: Site) -> dict[Path, list[str]]:
    """Return the style sheets of the site that load from the network."""
    found: dict[Path, list[str]] = {}
    for sheet in sorted(site.root.rglob("*.css")):
        urls = CSS_LOAD.findall(sheet.read_text(encoding="utf-8", errors="replace"))
        if urls:
            found[sheet] = [f"loads from the network: {url}" for url in urls]
    return found


def check(site: Site) -> dict[Path, list[str]]:
    """Return the findings of every page and style sheet of `site`."""
    findings: dict[Path, list[str]] = defaultdict(list, check_css(site))
    for path, page in site.pages.items():
        found = [*check_links(site, path), *check_loads(site, path)]
        found += [*check_alternatives(page), *check_times(page), *check_article(page)]
        if found:
            findings[path] = list(dict.fromkeys(found))
    if (site.root / "index.html") not in site.pages:
        findings[site.root / "index.html"].append("missing: the site has no front page")
    return findings


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: check_book.py SITE", file=sys.stderr)
        return 2
    root = Path(arguments[0]).resolve()
    if not root.is_dir():
        print(f"error: no site at {root}; build it with `make book`", file=sys.stderr)
        return 2
    site = Site(root)
    findings = check(site)
    for path, found in sorted(findings.items()):
        print(f"{path.relative_to(root)}")
        for finding in found:
            print(f"  {finding}")
    count = sum(map(len, findings.values()))
    print(f"==> checked {len(site.pages)} pages in {root}: {count or 'no'} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
