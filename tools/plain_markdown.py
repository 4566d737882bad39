"""MyST as plain CommonMark, for one dialect of NKI, as every host of notebooks shows it.

Text of the other dialect is left out. Roles become links or text, directives become quotes, code,
`<details>` or text, and what `literalinclude` names is there as code. What is not listed here is
refused: a page cannot get markup into its notebooks that their readers would see raw.
"""

from __future__ import annotations

import ast
import posixpath
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

DIALECTS = ("neuronxcc", "nki")

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}|:{3,})(?P<info>[^`\n]*)$")
_DIRECTIVE = re.compile(r"\{(?P<name>[\w:-]+)\}\s*(?P<argument>.*)")
_OPTIONS = re.compile(r"\A((?::[\w-]+:[^\n]*\n)+)\n?")
# Code, or, where a name in braces stands before it, a role.
_SPAN = re.compile(r"(?:\{([\w:]+)\})?(?<!`)(`+)(?!`)(.+?)(?<!`)\2(?!`)", re.DOTALL)
_TARGET = re.compile(r"(?:(?P<text>.*?)\s*<)?(?P<target>[^<>]+)>?", re.DOTALL)
_DEFINITION = re.compile(r"^(?!\s|[-*>|#])(.+)\n: +((?:.+\n?)(?:  +.+\n?)*)", re.MULTILINE)
_EMPTY_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s*$")
_ANCHOR = re.compile(r"(?<!!)\[([^\]]*)\]\(#([\w-]+)\)", re.DOTALL)
_LOCAL_LINK = re.compile(r"<a href=\"(?!https?:)([^\"]*)\">(.*?)</a>", re.DOTALL)
_FOR_THE_SITE = re.compile(r'^<div class="nki-choose">.*?^</div>\n', re.DOTALL | re.MULTILINE)


class References(Protocol):
    """Where the roles of a page lead."""

    def page(self, name: str, text: str) -> str:
        """A link to a page, ``notebooks/add_jax``, with a text; "" is the page's title."""

    def citation(self, keys: list[str]) -> str:
        """What stands for works of the bibliography."""

    def term(self, term: str, text: str) -> str:
        """What stands for a term of the glossary."""

    def file(self, path: str, text: str) -> str:
        """A link to a file of the site, such as the wheel."""

    def heading(self, slug: str) -> str | None:
        """The heading of this page that an anchor names, None if there is none."""


def convert(text: str, page: str, root: Path, dialect: str, references: References) -> str:
    """A page's text, or a part of it, as CommonMark.

    Args:
        text: MyST.
        page: the page that it is from, as in _toc.yml: links are relative to its folder.
        root: of the checkout.
        dialect: "neuronxcc" or "nki".
        references: where roles lead.

    Raises:
        ValueError: markup that is not known here.
    """
    return _Converter(page, root, dialect, references)(text)


class _Converter:
    def __init__(self, page: str, root: Path, dialect: str, references: References) -> None:
        self.folder = posixpath.dirname(page)
        self.root = root
        self.dialect = dialect
        self.references = references

    def __call__(self, text: str) -> str:
        parts = [
            self._fence(*part) if isinstance(part, tuple) else self._prose(part)
            for part in _parts(_FOR_THE_SITE.sub("", text))
        ]
        return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).strip("\n")

    # -- blocks

    def _fence(self, indent: str, fence: str, info: str, body: str) -> str:
        match = _DIRECTIVE.fullmatch(info.strip())
        if match is None:
            if fence.startswith(":"):
                raise ValueError(f"a fence of colons without a directive: {info!r}")
            # The body of a listing is as it was: indented as its fences.
            return f"{indent}{fence}{info}\n{textwrap.indent(body, indent)}{indent}{fence}"
        options: dict[str, str] = {}
        body = textwrap.dedent(body)
        if found := _OPTIONS.match(body):
            options = dict(re.findall(r"^:([\w-]+):[ ]*(.*)$", found[1], re.MULTILINE))
            body = body[found.end() :]
        directive = _DIRECTIVES.get(match["name"])
        if directive is None:
            raise ValueError(
                f"the directive {{{match['name']}}} is not known to tools/plain_markdown.py: "
                "say there what stands for it in a notebook"
            )
        shown = directive(self, match["argument"].strip(), options, body)
        return textwrap.indent(shown, indent)

    def _dialect_block(self, name: str, body: str) -> str:
        return self(body) if name == self.dialect else ""

    def _include(self, argument: str, options: dict[str, str], body: str) -> str:
        path = self.root / posixpath.normpath(posixpath.join(self.folder, argument))
        code = included(path.read_text(encoding="utf-8"), options)
        language = {".py": "python", ".cpp": "cpp", ".cu": "cpp", ".toml": "toml", ".yml": "yaml"}
        of_file = language.get(path.suffix, "")
        return f"```{options.get('language', of_file)}\n{code}\n```"

    def _dropdown(self, argument: str, options: dict[str, str], body: str) -> str:
        return f"<details><summary>{self.inline(argument)}</summary>\n\n{self(body)}\n\n</details>"

    def _quote(self, argument: str, options: dict[str, str], body: str) -> str:
        text = f"**{self.inline(argument)}.**\n\n{self(body)}" if argument else self(body)
        return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))

    def _through(self, argument: str, options: dict[str, str], body: str) -> str:
        return self(body)

    def _card(self, argument: str, options: dict[str, str], body: str) -> str:
        title = f"**{self.inline(argument)}**"
        if "link" in options:
            title = f"**{self._page(options['link'], self.inline(argument))}**"
        return f"{title}: {self(body)}\n"

    def _button(self, argument: str, options: dict[str, str], body: str) -> str:
        return f"**{self._page(argument, self.inline(body.strip()))}**\n"

    def _nothing(self, argument: str, options: dict[str, str], body: str) -> str:
        return ""

    # -- text

    def _prose(self, text: str) -> str:
        text = _DEFINITION.sub(_definition, text)
        paragraphs = (self.inline(paragraph) for paragraph in text.split("\n\n"))
        return "\n\n".join(paragraphs)

    def inline(self, text: str) -> str:
        """The roles of a paragraph as text; lines that were of the other dialect are left out."""
        lines = text.split("\n")
        found = _SPAN.sub(self._span, text).split("\n")
        if len(lines) == len(found):
            found = [
                new
                for old, new in zip(lines, found, strict=True)
                if old == new or (new.strip() and not _EMPTY_ITEM.match(new))
            ]
        text = _ANCHOR.sub(self._anchor, "\n".join(found))
        return _LOCAL_LINK.sub(lambda m: self._file(m[1], m[2]), text)

    def _span(self, match: re.Match[str]) -> str:
        name, _, inside = match.groups()
        if name is None:
            return match[0]
        if name in DIALECTS:
            if re.search(r"\{[\w:]+\}$", inside):
                raise ValueError(f"a role within {match[0]!r}, which needs two backticks then")
            # Code at an end has a blank beside it, for the sake of the backticks.
            text = re.sub(r"^ (?=`)|(?<=`) $", "", inside)
            return self.inline(text) if name == self.dialect else ""
        text, target = _TARGET.fullmatch(inside.strip()).group("text", "target")
        text, target = " ".join((text or "").split()), " ".join(target.split())
        if name == "doc":
            return self._page(target, text)
        if name == "cite":
            return self.references.citation([key.strip() for key in target.split(",")])
        if name == "term":
            return self.references.term(target, text or target)
        if name.startswith("py:"):
            return f"`{text or target}`"
        raise ValueError(
            f"the role {{{name}}} is not known to tools/plain_markdown.py: say there what stands "
            "for it in a notebook"
        )

    def _page(self, target: str, text: str) -> str:
        name = target.lstrip("/") if target.startswith("/") else f"{self.folder}/{target}"
        return self.references.page(posixpath.normpath(name), text)

    def _anchor(self, match: re.Match[str]) -> str:
        heading = self.references.heading(match[2])
        if heading is None:
            raise ValueError(f"no heading for the link {match[0]!r}")
        # What Jupyter and nbconvert make of a heading: its text, with hyphens for blanks.
        return f"[{match[1] or heading}](#{heading.replace(' ', '-')})"

    def _file(self, target: str, text: str) -> str:
        return self.references.file(posixpath.normpath(f"{self.folder}/{target}"), text)


def _definition(match: re.Match[str]) -> str:
    text = textwrap.dedent("  " + match[2].rstrip("\n")).replace("\n", "\n  ")
    return f"- **{match[1]}**: {text}\n"


_DIRECTIVES: dict[str, Callable[..., str]] = {
    "literalinclude": _Converter._include,
    "dropdown": _Converter._dropdown,
    "admonition": _Converter._quote,
    "note": _Converter._quote,
    "warning": _Converter._quote,
    "tip": _Converter._quote,
    "grid": _Converter._through,
    "grid-item": _Converter._through,
    "grid-item-card": _Converter._card,
    "button-ref": _Converter._button,
    "index": _Converter._nothing,
    **{
        name: lambda self, argument, options, body, name=name: self._dialect_block(name, body)
        for name in DIALECTS
    },
}


def _parts(text: str) -> Iterator[str | tuple[str, str, str, str]]:
    """Prose, and of each fence its indentation, its marks, its first line and its body."""
    prose: list[str] = []
    lines = iter(text.split("\n"))
    for line in lines:
        match = _FENCE.match(line)
        if match is None:
            prose.append(line)
            continue
        yield "\n".join(prose)
        prose = []
        indent, fence = match["indent"], match["fence"]
        body = []
        for inside in lines:
            end = inside.strip()
            if end and set(end) == {fence[0]} and len(end) >= len(fence):
                break
            body.append(inside.removeprefix(indent))
        else:
            raise ValueError(f"the fence {line.strip()!r} has no end")
        yield indent, fence, match["info"], "".join(f"{inside}\n" for inside in body)
    yield "\n".join(prose)


def included(text: str, options: dict[str, str]) -> str:
    """What `literalinclude` shows of a file.

    Args:
        text: of the file.
        options: pyobject, lines, start-at, end-at, end-before, dedent, as Sphinx has them.

    Raises:
        ValueError: the file has no such object or line, or an option is not known here.
    """
    known = {"pyobject", "lines", "start-at", "end-at", "end-before", "dedent"}
    silent = {"language", "emphasize-lines", "caption", "lineno-match", "linenos"}
    if unknown := options.keys() - known - silent:
        raise ValueError(f"literalinclude: the option {unknown} is not known here")
    lines = text.splitlines()
    if name := options.get("pyobject"):
        lines = lines[slice(*_place(ast.parse(text), name))]
    if start := options.get("start-at", "").strip('"'):
        lines = lines[_line(lines, start) :]
    if end := options.get("end-before", "").strip('"'):
        lines = lines[: _line(lines, end)]
    if end := options.get("end-at", "").strip('"'):
        lines = lines[: _line(lines, end) + 1]
    if chosen := options.get("lines"):
        lines = [line for part in chosen.split(",") for line in _range(lines, part)]
    shown = "\n".join(lines)
    return (textwrap.dedent(shown) if "dedent" in options else shown).strip("\n")


def _range(lines: list[str], part: str) -> list[str]:
    first, dash, last = part.strip().partition("-")
    return lines[int(first or 1) - 1 : int(last or len(lines)) if dash else int(first)]


def _line(lines: list[str], text: str) -> int:
    found = next((number for number, line in enumerate(lines) if text in line), None)
    if found is None:
        raise ValueError(f"literalinclude: no line has {text!r}")
    return found


def _place(tree: ast.AST, name: str) -> tuple[int, int]:
    for part in name.split("."):
        found = next(
            (n for n in ast.iter_child_nodes(tree) if getattr(n, "name", "") == part), None
        )
        if found is None:
            raise ValueError(f"literalinclude: there is no {name}")
        tree = found
    first = min([tree.lineno, *(decorator.lineno for decorator in tree.decorator_list)])
    return first - 1, tree.end_lineno
