"""Every constraint that the documentation of ``neuronxcc.nki`` states, broken once and refused.

The constraints are in the table of `nkisim.frontends.neuronxcc.coverage`, the cases in
`constraints/`. See
`constraints/walk.py` for the three kinds of case. A constraint without a case fails here.
"""

from __future__ import annotations

import constraints
import pytest
from constraints.walk import CASES, Exempt, Holds, Refused, run

from nkisim.errors import KernelError, NkiWarning
from nkisim.frontends.neuronxcc import coverage

# Cases use small whole numbers; some functions are valid on a narrower range. Few keep a result.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}:nkisim.errors.NkiWarning")
    for text in ("activation.* is given", "kernel .* leaves no result")
]

LISTED = [
    (f"{module}.{name}", constraint)
    for module, names in coverage.documented().items()
    for name, facts in names.items()
    for constraint in facts.get("constraints", ())
]


def cases(kind: type) -> list:
    return [
        pytest.param(*key, id=f"{key[0].removeprefix('neuronxcc.')}: {key[1]}"[:90])
        for key in LISTED
        if isinstance(CASES.get(key), kind)
    ]


def function(path: str):
    for module in coverage.documented():
        name = path.removeprefix(f"{module}.")
        if name in coverage.documented()[module] and path == f"{module}.{name}":
            return coverage.find(module, name)
    raise LookupError(path)


def test_every_constraint_has_a_case_and_every_case_a_constraint():
    assert constraints.__all__
    assert set(LISTED) - set(CASES) == set()
    assert set(CASES) - set(LISTED) == set()
    assert len(LISTED) == len(set(LISTED))


@pytest.mark.parametrize(("path", "constraint"), cases(Refused))
def test_it_is_refused(path, constraint):
    case, api = CASES[path, constraint], function(path)
    for broken, error, match, _, _ in case.breaks:
        expected = pytest.warns if error is NkiWarning else pytest.raises
        with expected(error, match=match) as caught:
            _do(case, broken, api)
        if error is NkiWarning:
            continue
        if isinstance(caught.value, KernelError):
            assert caught.value.rule
            assert caught.value.fix


@pytest.mark.parametrize(("path", "constraint"), cases(Refused))
def test_what_its_fix_line_says_works(path, constraint):
    case, api = CASES[path, constraint], function(path)
    for broken, error, _, fix, mended in case.breaks:
        if isinstance(mended, str):
            assert len(mended.split()) >= 3
            continue
        said = _message(lambda broken=broken: _do(case, broken, api), error)
        assert fix, said
        assert fix in said.partition("fix:")[2]
        _do(case, mended, api)


def _message(action, error: type[Exception]) -> str:
    """The message of a program that is refused, on one line."""
    with (pytest.warns if error is NkiWarning else pytest.raises)(error) as caught:
        action()
    if error is NkiWarning:
        [told] = [w.message for w in caught if issubclass(w.category, NkiWarning)]
    else:
        told = caught.value
    return " ".join(str(told).split())


@pytest.mark.parametrize(("path", "constraint"), cases(Refused))
def test_its_neighbour_runs(path, constraint):
    case = CASES[path, constraint]
    _do(case, case.kept, function(path))


def _do(case: Refused, action, api) -> None:
    if case.inside:
        run(action, api, target=case.target)
    else:
        action(api)


@pytest.mark.parametrize(("path", "constraint"), cases(Holds))
def test_it_holds(path, constraint):
    CASES[path, constraint].show(function(path))


@pytest.mark.parametrize(("path", "constraint"), cases(Exempt))
def test_an_exemption_has_a_reason(path, constraint):
    assert len(CASES[path, constraint].reason.split()) >= 3


def test_most_constraints_are_tested():
    exempt = [key for key in LISTED if isinstance(CASES[key], Exempt)]
    assert len(exempt) < len(LISTED) / 12
