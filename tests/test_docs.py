"""What README.md, CONTRIBUTING.md and the pages say about this repository is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES = sorted((ROOT / "book").glob("*.md")) + sorted((ROOT / "notebooks").glob("*.md"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code(text: str) -> str:
    """Return the code blocks and inline code of a Markdown text."""
    blocks = re.findall(r"^( *)(`{3,})[^\n]*\n(.*?)^\1\2", text, re.MULTILINE | re.DOTALL)
    return "\n".join([block[2] for block in blocks] + re.findall(r"`([^`\n]+)`", text))


def test_make_targets_exist() -> None:
    named = set()
    for document in DOCUMENTS + PAGES:
        text = code(document.read_text())
        commands = re.findall(r"^(?:\S+ )?make ([^#\n]*)", text, re.MULTILINE)
        words = {word for command in commands for word in command.split()}
        named |= {(name(document), word) for word in words if re.match(r"[a-z-]+$", word)}
    assert len(named) > 20
    assert {(where, target) for where, target in named if target not in TARGETS} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_and_paths_exist(document: Path) -> None:
    text = document.read_text()
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    folders = "book|kernels|nkibook|nkisim|notebooks|tests|tools"
    paths = re.findall(rf"(?<![\w/.])(?:{folders})/[\w./]*", text)
    named = {path.rstrip(".") for path in [*links, *paths] if "NAME" not in path}
    there = {path for path in named if (ROOT / path).exists() or (ROOT / f"{path}.md").exists()}
    assert named - there == set()


def test_the_picture_of_the_readme_is_there_and_is_the_one_of_the_landing_page() -> None:
    readme = DOCUMENTS[0].read_text()
    files = re.findall(r'(?:src|srcset)="([^"]+)"', readme)
    assert [0 < (ROOT / file).stat().st_size < 60_000 for file in files] == [True, True]
    (alt,) = re.findall(r'alt="([^"]+)"', readme)
    landing = (ROOT / "notebooks/nki/intro.ipynb").read_text()
    said = [float(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", alt)]
    for kernel in ("apart_nki", "loss_and_gradient"):
        (us,) = set(re.findall(rf"timeline of {kernel}, ([\d.]+) microseconds", landing))
        assert min(abs(float(us) - number) for number in said) <= 0.55, kernel  # both are rounded


def test_every_target_is_explained() -> None:
    makefile = (ROOT / "Makefile").read_text()
    explained = set(re.findall(r"^([a-z-]+):[^\n]*## \S", makefile, re.MULTILINE))
    assert explained == TARGETS
