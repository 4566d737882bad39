"""A reader's kernels in the place of the book's.

    own.copy("swiglu")       # the book's kernels, in my_kernels/swiglu.py, to be edited
    own.load("swiglu")       # launches those that are there, and says which
    own.names("swiglu")      # what such a file may hold

    python -m nkibook.own swiglu        # copies, too, from a terminal

Each operator has a file in the folder `my_kernels`, with kernels under the names and with the
parameters of the book's, in `kernels/<operator>/nki.py` or `neuronxcc.py`. What is there is
launched, and what is not is the book's.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import kernels
from kernels import launch
from kernels.arrays import first_wrong
from kernels.operators import operators
from nkisim.errors import KernelError
from nkisim.runtime.importing import import_file

FOLDER = "my_kernels"
"""Where a reader's kernels are looked for, in the working directory."""


class Choice(NamedTuple):
    """Which kernel is launched under a name of the book's.

    Attributes:
        operator: its package in `kernels`.
        name: of the book's kernel.
        kernel: the reader's; None for the book's.
        said: whose it is, in a line.
        trouble: why the reader's is not launched, in whole; "" if it is, or if there is none.
    """

    operator: str
    name: str
    kernel: Any
    said: str
    trouble: str = ""


class Own(list[Choice]):
    """What `load` chose, one for each kernel of the operators.

    Prints as a table, with what is wrong below it.

    Attributes:
        notes: on the folder and its files.
    """

    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        width = max((len(choice.name) for choice in self), default=0)
        table = [f"{choice.name:{width}}  {choice.said}" for choice in self]
        # Two kernels of a file that cannot be imported share what is wrong.
        troubles: dict[str, list[str]] = {}
        for choice in self:
            if choice.trouble:
                troubles.setdefault(choice.trouble, []).append(choice.name)
        below = []
        for trouble, names in troubles.items():
            details = textwrap.indent(trouble.partition("\n")[2], "  ")  # the first line is said
            below.append(f"\n{', '.join(names)}\n{details}")
        return "\n".join([*table, *self.notes, *below])


def load(*packages: str, folder: str | Path | None = FOLDER, **given: Any) -> Own:
    """Launch a reader's kernels from here on, and the book's where there is none.

    Functions that PyTorch or JAX compiled before are compiled anew when they are called next: they
    hold the kernels of then.

    Args:
        packages: the operators, such as "swiglu".
        folder: holds a file for each operator, or not; None for no folder.
        given: kernels by the name of the book's, before those of the folder:
            ``nki_matmul_kernel=any_size``.

    Returns:
        Which kernel each one is. In the simulator the reader's are tried first, on the example of
        `python -m kernels`, the backward kernel with what the forward kernel keeps for it: one that
        is wrong, or that raises, is not launched, and its line says so, as it does of a file that
        cannot be imported and of what is no kernel of this dialect. A kernel may lack the last
        parameters of the book's. It is launched without them where they are false, and the book's
        is launched where they are not.

    Raises:
        ValueError: a name that is no kernel of these operators.
    """
    names = {name: package for package in packages for name in kernels_of(package)}
    if unknown := set(given) - set(names):
        raise ValueError(
            f"{', '.join(sorted(unknown))}: no kernel of {', '.join(packages)}. "
            f"Their names are {', '.join(names)}."
        )
    for name in names:
        launch.instead.pop(name, None)
    _forget_compiled()
    _said.clear()
    found = Own()
    notes: list[str] = []
    for package in dict.fromkeys(packages):
        module: Any = None
        path = Path(folder or "") / f"{package}.py"
        trouble = ""
        if folder is not None and path.is_file():
            try:
                module = import_file(path)
            except Exception as error:  # whatever the reader's code does wrong
                trouble = _told(error)
        defined = [name for name in kernels_of(package) if hasattr(module, name)]
        if module is not None:
            notes.extend(_on_names(path, module, package, defined))
        for name in kernels_of(package):
            kernel, where = given.get(name), "given here"
            if kernel is None:
                kernel, where = getattr(module, name, None), str(path)
            wrong = _put(package, name, kernel, where) if kernel is not None else trouble
            said = "the book's"
            if wrong:
                said += f": {where if kernel is not None else path} {wrong.splitlines()[0]}"
            elif kernel is not None:
                said = f"yours, {where}"
            chosen = launch.instead.get(name, (None,))[0]
            found.append(Choice(package, name, chosen, said, wrong))
    found.notes = (*notes, *_on_folder(folder))
    return found


@contextlib.contextmanager
def only(*packages: str, **given: Any) -> Iterator[Own]:
    """A context in which the book's kernels are launched, but for those that are given.

    Args:
        packages, given: as for `load`.
    """
    before = dict(launch.instead)
    launch.instead.clear()
    try:
        yield load(*packages, folder=None, **given)
    finally:
        launch.instead.clear()
        launch.instead.update(before)
        _forget_compiled()


@contextlib.contextmanager
def where_they_run() -> Iterator[None]:
    """A context in which a reader's kernel that raises at a launch is left out of it: a line says
    so, and the book's is launched. For programs of other sizes than those that it was tried at."""

    def left_out(kernel: Any, args: tuple[Any, ...], error: Exception) -> None:
        name = next(name for name, (found, _) in launch.instead.items() if found is kernel)
        shapes = (tuple(x.shape) for x in args if hasattr(x, "shape"))
        say_left_out(kernel, name, shapes, error)

    launch.left_out = left_out
    try:
        yield
    finally:
        launch.left_out = None


_said: set[str] = set()


def say_left_out(
    kernel: Any, name: str, shapes: Iterable[tuple[int, ...]], error: Exception
) -> None:
    """Print, once after a `load`, that a reader's kernel raised, at which shapes, and what counts
    in its place."""
    line = (
        f"{kernel.__name__} raises {type(error).__name__} for {' and '.join(map(str, shapes))}: "
        f"{str(error).partition(chr(10))[0]}. The book's {name} counts in its place."
    )
    if line not in _said:
        print(line)
    _said.add(line)


def mine() -> list[str]:
    """The names of the book's kernels in whose place a reader's is launched."""
    return list(launch.instead)


def _forget_compiled() -> None:
    """Have PyTorch and JAX trace functions anew, where they are loaded."""
    if "torch._dynamo" in sys.modules:
        sys.modules["torch._dynamo"].reset()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


def _on_names(path: Path, module: Any, package: str, defined: list[str]) -> Iterator[str]:
    """What to say of a file that has no kernel, or one under a name that is none of the book's."""
    missing = [name for name in kernels_of(package) if name not in defined]
    others = [
        name
        for name, value in vars(module).items()
        if name.startswith("nki_") and getattr(value, "__module__", "") == path.stem
    ]
    others = [name for name in others if name not in defined]
    if missing and (others or not defined):
        has = f" (it has {', '.join(others)})" if others else ""
        yield f"{path} has no {' and no '.join(missing)}{has}."


def _on_folder(folder: str | Path | None) -> Iterator[str]:
    """What to say of a folder: where it is, and which files in it are of no operator."""
    if folder is None:
        return
    if not Path(folder).is_dir():
        yield f"There is no folder {folder} where Python runs (os.getcwd() says where)."
        return
    yield f"Looked in {Path(folder).resolve()}."
    known = {operator.package for operator in operators()}
    for path in sorted(Path(folder).glob("*.py")):
        if path.stem not in known:
            yield (
                f"{path} is named after no operator. They are {', '.join(sorted(known))}: "
                "rmsnorm.py holds kernels of rmsnorm."
            )


def names(*packages: str) -> str:
    """The names, the parameters and the results of the kernels that a file of each operator may
    hold, as lines of text."""
    lines = []
    for package in packages:
        # From the source: what the SDK makes of a kernel says neither.
        module = importlib.import_module(f"kernels.{package}.{kernels.dialect}")
        source = inspect.getsource(module)
        top = ast.parse(source).body
        defined = {node.name: node for node in top if isinstance(node, ast.FunctionDef)}
        lines.append(f"{FOLDER}/{package}.py")
        for name in kernels_of(package):
            kernel = defined[name]
            values = [node.value for node in kernel.body if isinstance(node, ast.Return)]
            results = ast.get_source_segment(source, values[-1]) if values[-1] else None
            lines += [f"  {name}({ast.unparse(kernel.args)})", f"    -> {results}"]
    return "\n".join(lines)


def kernels_of(package: str) -> list[str]:
    """The names of an operator's kernels, in the dialect of `kernels`."""
    module = importlib.import_module(f"kernels.{package}.{kernels.dialect}")
    return [name for name in vars(module) if name.startswith("nki_") and name.endswith("_kernel")]


def _put(package: str, name: str, kernel: Any, where: str) -> str:
    """Launch a kernel under a name if it is right. Returns what is wrong, or ""."""
    book = getattr(importlib.import_module(f"kernels.{package}.{kernels.dialect}"), name)
    if type(kernel) is not type(book):
        return (
            f"has a {type(kernel).__module__}.{type(kernel).__name__} as {name}\n"
            f"The book's kernels here are those of {kernels.dialect}: decorate it with @nki.jit of "
            f"{'nki' if kernels.dialect == 'nki' else 'neuronxcc.nki'}, or start Python with the "
            "other NKI_DIALECT."
        )
    takes, wanted = (len(inspect.signature(k).parameters) for k in (kernel, book))
    if takes > wanted:
        return (
            f"has {takes} parameters for {name}, and the book's has {wanted}\n"
            f"They are {inspect.signature(book)}. Leave the last ones out."
        )
    launch.instead[name] = kernel, takes
    if kernels.backend == "nkisim" and (problem := _problem(package, name)):
        del launch.instead[name]
        return problem
    return ""


def _problem(package: str, name: str) -> str:
    """What is wrong with a kernel of an operator in float32, as `python -m kernels` tries it, or
    ""."""
    from kernels.__main__ import compared

    keeps = not name.endswith("_backward_kernel") and len(kernels_of(package)) > 1
    for operator in operators():
        if operator.package == package:
            try:
                for what, got, want in compared(operator, "numpy"):
                    if problem := first_wrong(got, want, np.float32):
                        if keeps and what != "result":
                            what += ", which the book's backward kernel computes from its results,"
                        return f"is wrong\nIts {what} is {problem}."
            except Exception as error:  # whatever the reader's code does wrong
                return _told(error)
    return ""


def _told(error: Exception) -> str:
    """The whole message of an error, with the line of the reader's that it comes from."""
    if isinstance(error, KernelError | SyntaxError):  # which name the line themselves
        text = "".join(traceback.format_exception_only(error)).strip()
    else:
        line = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}\n  at {line.filename}:{line.lineno}: {line.line}"
    return f"raises {type(error).__name__}\n{text}"


def ours(name: str, parameters: Iterator[str] | set[str]) -> tuple[str, Any] | None:
    """The book's name of a reader's kernel that was launched, and the kernel.

    Args:
        name: of the function.
        parameters: names that the call has arguments for.

    Returns:
        None for a kernel of the book.
    """
    wanted = set(parameters)
    for book, (kernel, _) in launch.instead.items():
        if kernel.__name__ == name and wanted <= set(inspect.signature(kernel).parameters):
            return book, kernel
    return None


def copy(package: str, folder: str | Path = FOLDER) -> Path:
    """Copy the book's kernels of an operator, in the dialect of `kernels`, to be edited.

    Args:
        package: the operator, such as "swiglu".
        folder: where; made if it is not there.

    Returns:
        The file, which imports what it needs from the book.

    Raises:
        FileExistsError: it is there already, and stays as it is.
        ModuleNotFoundError: no such operator.
    """
    there = Path(folder) / f"{package}.py"
    if there.exists():
        raise FileExistsError(f"{there} is there already: edit it, or remove it first")
    module = importlib.import_module(f"kernels.{package}.{kernels.dialect}")
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_text(inspect.getsource(module), encoding="utf-8")
    return there


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    packages = list(dict.fromkeys(operator.package for operator in operators()))
    parser = argparse.ArgumentParser(prog="python -m nkibook.own", description=(__doc__ or ""))
    parser.add_argument("operator", choices=packages)
    chosen = parser.parse_args(arguments).operator
    try:
        there = copy(chosen)
    except FileExistsError as error:
        parser.error(str(error))
    print(f"{there} has the book's {' and '.join(kernels_of(chosen))}. Edit them.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
