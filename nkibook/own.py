"""A reader's kernels in the place of the book's.

    own.copy("swiglu")       # the book's kernels, in my_kernels/swiglu.py, to be edited
    own.load("swiglu")       # launches those that are there, and says which

    python -m nkibook.own swiglu        # copies, too, from a terminal

Each operator has a file in the folder `my_kernels`, with kernels under the names and with the
parameters of the book's, in `kernels/<operator>/nki.py` or `neuronxcc.py`. What is there is
launched, and what is not is the book's.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kernels
from kernels import launch
from kernels.operators import operators
from nkisim.runtime.importing import import_file

FOLDER = "my_kernels"
"""Where a reader's kernels are looked for, in the working directory."""


class Choice(NamedTuple):
    """Which kernel is launched under a name of the book's.

    Attributes:
        operator: its package in `kernels`.
        name: of the book's kernel.
        kernel: the reader's; None for the book's.
        said: what was found out about it.
    """

    operator: str
    name: str
    kernel: Any
    said: str


class Own(list[Choice]):
    """What `load` chose, one for each kernel of the operators. Prints as a table."""

    def __repr__(self) -> str:
        width = max((len(choice.name) for choice in self), default=0)
        return "\n".join(f"{choice.name:{width}}  {choice.said}" for choice in self)


def load(*packages: str, folder: str | Path = FOLDER, **given: Any) -> Own:
    """Launch a reader's kernels from here on, and the book's where there is none.

    Call it before the operators are used: JAX keeps a program that it has traced.

    Args:
        packages: the operators, such as "swiglu".
        folder: holds a file for each operator, or not.
        given: kernels by the name of the book's, before those of the folder:
            ``nki_matmul_kernel=any_size``.

    Returns:
        Which kernel each one is. In the simulator the reader's are tried first, on the example of
        `python -m kernels`: one that is wrong, or that raises, is not launched, and its line says
        so. A kernel may lack the last parameters of the book's. It is launched without them where
        they are false, and the book's is launched where they are not.

    Raises:
        TypeError: more parameters than the book's kernel has, or no kernel of this dialect.
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
    found = Own()
    for name, package in names.items():
        path = Path(folder) / f"{package}.py"
        kernel, where = given.get(name), "given here"
        if kernel is None and path.is_file():
            kernel, where = getattr(import_file(path), name, None), str(path)
        said = "the book's"
        if kernel is not None:
            said = _put(package, name, kernel, where)
        found.append(Choice(package, name, launch.instead.get(name, (None,))[0], said))
    return found


def kernels_of(package: str) -> list[str]:
    """The names of an operator's kernels, in the dialect of `kernels`."""
    module = importlib.import_module(f"kernels.{package}.{kernels.dialect}")
    return [name for name in vars(module) if name.startswith("nki_") and name.endswith("_kernel")]


def _put(package: str, name: str, kernel: Any, where: str) -> str:
    """Launch a kernel under a name if it is right. Returns what to say of it."""
    book = getattr(importlib.import_module(f"kernels.{package}.{kernels.dialect}"), name)
    if type(kernel) is not type(book):
        raise TypeError(
            f"{name} in {where} is a {type(kernel).__module__}.{type(kernel).__name__}, and the "
            f"book's kernels here are those of {kernels.dialect}: decorate it with @nki.jit of "
            f"{'nki' if kernels.dialect == 'nki' else 'neuronxcc.nki'}, or start Python with the "
            "other NKI_DIALECT."
        )
    takes, wanted = (len(inspect.signature(k).parameters) for k in (kernel, book))
    if takes > wanted:
        raise TypeError(
            f"{name} in {where} has {takes} parameters, and the book's has {wanted}: "
            f"{inspect.signature(book)}. Leave the last ones out."
        )
    launch.instead[name] = kernel, takes
    if kernels.backend == "nkisim" and (problem := _problem(package)):
        del launch.instead[name]
        return f"the book's; yours ({where}) {problem}"
    return f"yours, {where}"


def _problem(package: str) -> str:
    """What is wrong with an operator in float32, as `python -m kernels` tries it, or ""."""
    from kernels.__main__ import errors

    for operator in operators():
        if operator.package == package:
            try:
                found = errors(operator, "numpy")
            except Exception as error:  # whatever the reader's code does wrong
                return f"raises {type(error).__name__}: {str(error).splitlines()[0]}"
            for what, size in found.items():
                if not size <= 1:
                    return f"is wrong: its {what} is off by {size:.2g} times the tolerance"
    return ""


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
