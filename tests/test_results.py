"""What cells gave is stored anew when a reader sees a change, and is shown by every host."""

from __future__ import annotations

import base64
import io
import lzma
from dataclasses import replace
from pathlib import Path

import nbformat
import pages
import plain_outputs
import pytest
from PIL import Image

import results
from nkibook import plots

PAGE = """\
# Title

```{code-cell} python
# neuronxcc.nki
print("only here")
```

```{code-cell} python
print("shared")
```

```{code-cell} python
:tags: [nbval-ignore-output]
print("measured")
```
"""


def stream(text: str, name: str = "stdout") -> nbformat.NotebookNode:
    return nbformat.v4.new_output("stream", name=name, text=text)


def shown(kind: str, **data: str) -> nbformat.NotebookNode:
    named = {key.replace("_", "/"): value for key, value in data.items()}
    return nbformat.v4.new_output(kind, data=named)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "book").mkdir()
    (tmp_path / "book/page.md").write_text(PAGE)
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/page\n")
    return tmp_path


def result(root: Path, dialect: str, *texts: str) -> results.Result:
    outputs = [[stream(text)] for text in texts]
    return results.Result(results.digest("book/page", dialect, root), outputs)


def test_a_result_is_that_of_the_code_in_one_dialect(root: Path) -> None:
    first, second = result(root, "neuronxcc", "a", "b", "1"), result(root, "nki", "b", "1")
    assert results.missing(root) == [("book/page", "neuronxcc"), ("book/page", "nki")]
    assert results.write(first, "book/page", "neuronxcc", root)
    assert results.write(second, "book/page", "nki", root)
    assert results.read("book/page", "nki", root) == second
    assert results.missing(root) == []

    page = root / "book/page.md"
    page.write_text(PAGE.replace("# Title", "# Another title"))  # no code
    assert results.missing(root) == []
    page.write_text(PAGE.replace("only here", "here"))  # which `nki` has not
    assert results.missing(root) == [("book/page", "neuronxcc")]
    page.write_text(PAGE.replace("shared", "both"))
    assert len(results.missing(root)) == 2


def test_it_is_written_anew_only_where_a_reader_sees_a_change(root: Path) -> None:
    def write(texts: str, **changed: str) -> bool:
        found = replace(result(root, "nki", *texts.split()), **changed)
        return results.write(found, "book/page", "nki", root)

    file = results.path("book/page", "nki", root)
    assert write("nki.py:12 1", date="2026-01-01", commit="a" * 8, python="3.11.0")
    before = file.read_bytes()
    # Another day and commit, a time that was measured again, a line of a kernel that has moved.
    assert not write("nki.py:14 2", date="2026-01-02", commit="b" * 8)
    assert file.read_bytes() == before
    assert results.read("book/page", "nki", root).commit == "a" * 8
    assert write("nki.py:14c 2")
    # The same content gives the same bytes.
    again = file.read_bytes()
    file.unlink()
    assert write("nki.py:14c 2")
    assert file.read_bytes() == again
    assert b"3.11" not in again  # it is compressed
    assert "nki.py:14c" in lzma.decompress(again).decode()


def test_differences_name_the_cell_and_what_differs(root: Path) -> None:
    old, new = (result(root, "nki", text, "1") for text in ("x\ny\n", "x\nz\n"))
    found = results.differences(old, new, "book/page", "nki", root)
    assert "--- book/page (nki), code cell 0, stored" in found
    assert {"-stdout: y", "+stdout: z"} <= set(found)
    for before, after in (("<svg><a/></svg>", "<svg><b/></svg>"), ("x" * 500, "x" * 500 + "y")):
        pair = [
            replace(old, outputs=[[shown("display_data", text_html=h)], []])
            for h in (before, after)
        ]
        assert results.differences(*pair, "book/page", "nki", root)
        assert not results.differences(pair[0], pair[0], "book/page", "nki", root)
    assert "no result" in results.differences(None, new, "book/page", "nki", root)[0]


def test_what_is_of_one_run_is_not_kept() -> None:
    here = str(pages.ROOT)
    value = shown("execute_result", text_plain="<X at 0x7f12a4c0e510>")
    value.execution_count = 7
    trace = stream(f"File {here}/nkisim/a.py, /tmp/ipykernel_12/345.py, nki.py:7\n")
    found = results.kept([stream("a"), stream("b\n"), value, trace])
    assert [o.get("text") or o.data["text/plain"] for o in found] == [
        "ab\n",
        "<X at 0x...>",
        "File nkisim/a.py, <cell>, nki.py:7\n",
    ]
    assert "execution_count" not in found[1]


def picture(output: nbformat.NotebookNode) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(output.data["image/png"]))).convert("RGB")


def figure(title: str, color: str = "red") -> plots.Figure:
    fig, axes = plots.subplots(size=(4, 2))
    axes.barh([title], [1], color=color)
    axes.set_xlabel("modelled time, µs")
    return plots.show(fig, alt=f"A bar: {title}", caption=f"below {title}")


def display(value: object) -> nbformat.NotebookNode:
    return shown("display_data", text_html=value._repr_html_(), text_plain=repr(value))


def test_a_figure_becomes_a_picture_with_its_caption() -> None:
    drawing, caption = plain_outputs.plain(display(figure("one")))
    described = drawing.metadata["image/png"]
    assert (described["alt"], described["width"]) == ("A bar: one", 384)
    assert drawing.data["text/plain"] == "Figure: A bar: one"
    assert caption.data == {"text/html": "<p>below one</p>"}
    image = picture(drawing)
    assert image.width == 384 * plain_outputs.SCALE
    colors = {color for _, color in image.getcolors(1 << 24)}
    assert (255, 255, 255) in colors  # the ground, also in dark mode
    assert any(r > 200 and g < 60 and b < 60 for r, g, b in colors)  # the bar
    assert any(max(color) < 60 for color in colors)  # letters: the ink is the page's on the site
    assert plain_outputs.plain(display(figure("one"))) == [drawing, caption]


def test_a_picture_is_made_anew_only_when_it_shows_something_else() -> None:
    """Not when the library draws it in another way: it is known by what it is made of."""
    drawing, *_ = plain_outputs.plain(display(figure("one")))
    cell = nbformat.v4.new_code_cell("", outputs=[drawing])
    drawing.data["image/png"] = "bWFkZQ=="
    made = plain_outputs.known(nbformat.v4.new_notebook(cells=[cell]))
    again, *_ = plain_outputs.plain(display(figure("one")), made=made)
    assert again.data["image/png"] == "bWFkZQ=="
    other, *_ = plain_outputs.plain(display(figure("one", "blue")), made=made)
    assert other.data["image/png"] != "bWFkZQ=="


def test_of_several_pictures_the_first_seen_is_shown() -> None:
    frames = [figure("one"), figure("two", "blue")]
    said, drawing, _ = plain_outputs.plain(display(plots.Moving(frames, what="bars")))
    assert said.data["text/html"] == "<p>The last of 2 frames. Run the cell to see it move.</p>"
    assert drawing.metadata["image/png"]["alt"] == "A bar: two"

    choice = plots.Choice({"1": frames[0], "2": frames[1]}, what="bar", start="1")
    said, drawing, _ = plain_outputs.plain(display(choice))
    assert drawing.metadata["image/png"]["alt"] == "A bar: one"
    assert said.data["text/html"] == "<p>bar: <b>1</b>. Run the cell to choose 2.</p>"
    # nbval compares the texts of outputs one by one, so there is one, as there was.
    assert said.data["text/plain"] == repr(choice)
    assert "text/plain" not in drawing.data


def test_html_keeps_its_text_and_loses_its_styles() -> None:
    row = '<tr><td style="a" colspan="2">1 &lt; 2</td></tr>'
    table = f'<style>a{{}}</style><table class="x">{row}</table>'
    (found,) = plain_outputs.plain(shown("display_data", text_html=table, text_plain="t"))
    assert found.data["text/html"] == '<table><tr><td colspan="2">1 &lt; 2</td></tr></table>'
    listing = (
        '<div class="nki-hlo"><pre><code><span class="nki-line">a = <b>f</b>()\n</span>'
        '<span class="nki-line">b\n</span></code></pre></div>'
    )
    (found,) = plain_outputs.plain(shown("display_data", text_html=listing, text_plain="t"))
    assert found.data["text/html"] == "<pre><code>a = f()\nb</code></pre>"
