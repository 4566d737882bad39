"""Sphinx extension: version, date and licence at the foot, and what depends on where the site is.

The addresses of the site and of the repository are those of [project.urls] in pyproject.toml: for
the canonical links of OpenGraph, and for links to the source and to report an error. While they are
not set, the site has none of these.
"""

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pages
from sphinx.application import Sphinx
from sphinx.config import Config


def configure(app: Sphinx, config: Config) -> None:
    """Fill in what _config.yml cannot know."""
    root = Path(app.confdir)
    options = config.html_theme_options
    options["extra_footer"] = footer(root)
    # Jupyter Book adds them, though sections have no numbers and nothing is written in LaTeX; they
    # do not say that pages may be read side by side, so Sphinx would read one at a time.
    for name in ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"):
        app.extensions[name].parallel_read_safe = True
    config.ogp_site_url = pages.site(root) or ""
    if repository := pages.repository(root):
        options |= {
            "repository_url": repository,
            "repository_branch": pages.BRANCH,
            "use_repository_button": True,
            "use_source_button": True,
            "use_issues_button": True,
        }


def footer(root: Path) -> str:
    """What stands at the foot of every page."""
    said = ["MIT licence", "nothing on this page is loaded from the network"]
    project = root / "pyproject.toml"
    if project.is_file():
        said.insert(0, f"Version {pages.version(root)}, {_date(root, project)}")
    return ". ".join(f"{text[0].upper()}{text[1:]}" for text in said) + "."


def _date(root: Path, project: Path) -> str:
    """The day of the last commit; of an unpacked archive, the day of its files."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%cs"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return datetime.fromtimestamp(project.stat().st_mtime, UTC).date().isoformat()


def setup(app: Sphinx) -> dict[str, bool]:
    # Before the theme reads its options.
    app.connect("config-inited", configure, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
