"""Every constraint that the documentation of ``neuronxcc.nki`` states, broken once and refused.

The constraints are in the table of `nkibook.facts.coverage`, the cases in
`constraints/`, of the three kinds of `constraints/walk.py`. A constraint without a case fails.
"""

from __future__ import annotations

import pytest
from constraints import neuronxcc as constraints
from constraints.neuronxcc.walk import CASES, Exempt, Holds, Refused, run

from nkibook.facts import coverage
from nkisim.errors import KernelError, NkiWarning

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


@pytest.mark.parametrize(
    ("path", "constraint"),
    [pytest.param(*k, id=f"{k[0].removeprefix('neuronxcc.')}: {k[1]}"[:90]) for k in LISTED],
)
def test_a_constraint_is_refused_when_broken_and_holds_when_mended(path, constraint):
    case = CASES[path, constraint]
    if isinstance(case, Exempt):
        assert len(case.reason.split()) >= 3
        return
    api = function(path)
    if isinstance(case, Holds):
        case.show(api)
        return
    for broken, error, match, fix, mended in case.breaks:
        message = refusal(lambda broken=broken: do(case, broken, api), error, match)
        if isinstance(mended, str):
            assert len(mended.split()) >= 3
            continue
        assert fix, message
        assert fix in message.partition("fix:")[2]
        do(case, mended, api)
    if case.kept is not None:
        do(case, case.kept, api)


def refusal(action, error: type[Exception], match: str) -> str:
    """The message of a program that is refused, on one line."""
    with (pytest.warns if error is NkiWarning else pytest.raises)(error, match=match) as caught:
        action()
    if error is NkiWarning:
        [told] = [w.message for w in caught if issubclass(w.category, NkiWarning)]
    else:
        told = caught.value
    if isinstance(told, KernelError):
        assert told.rule
        assert told.fix
    return " ".join(str(told).split())


def do(case: Refused, action, api) -> None:
    if case.inside:
        run(action, api, target=case.target)
    else:
        action(api)


def test_most_constraints_are_tested():
    exempt = [key for key in LISTED if isinstance(CASES[key], Exempt)]
    assert len(exempt) < len(LISTED) / 12
