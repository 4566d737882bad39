"""Every setting of every function of both dialects is read, and is held against its annotation."""

import ast
import enum
import inspect
import textwrap

import neuronxcc.nki.isa as old_isa
import neuronxcc.nki.language as old_language
import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
import pytest

import nkisim
from nkisim.errors import ParameterError
from nkisim.frontends import settings
from nkisim.frontends.neuronxcc.nki import keywords
from nkisim.frontends.nki import arguments
from nkisim.frontends.nki.arguments import _BY_NAME

MODULES = {
    "neuronxcc nl": (old_language, int, {}),
    "neuronxcc nisa": (old_isa, int, {}),
    "nki nl": (nl, str, _BY_NAME),
    "nki nisa": (nisa, str, _BY_NAME),
    "nki ncc": (ncc, str, _BY_NAME),
    "nki tensor": (nl.NkiTensor, str, _BY_NAME),
}

APART = arguments._APART | keywords._APART

# What says nothing that a simulator of values and times could obey, by AWS's documentation.
UNREAD = {
    "name",  # of an instruction, for the profiler
    "kwargs",
    "priority",  # quality of service among DMA queues
    "parallel_reduce",  # nl.all_reduce: memory against speed
    "producers",  # depends_on: an order that results do not depend on
    "engine of core_barrier",  # which engine waits
    "keepdims of tensor_reduce",  # dst has the shape
    "keepdims of var",  # "currently ignored; result always has keepdims=True shape" (SDK 2.32)
    *(f"{p} of builtin_custom_op" for p in ("srcs", "dsts")),  # is refused
    *(f"ulib_to_{p}_version of builtin_custom_op" for p in ("ucode", "isa")),
}


def functions(module):
    for name in getattr(module, "__all__", vars(module)):
        function = getattr(module, name)
        if inspect.isfunction(function) and not name.startswith("_"):
            yield name, function


def parameters(node):
    a = node.args
    given = [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]
    return [p.arg for p in given if p is not None]


@pytest.mark.parametrize("where", MODULES)
def test_every_parameter_is_read(where):
    for name, function in functions(MODULES[where][0]):
        inner = inspect.unwrap(function)
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(inner))).body
        read = {n.id for part in node.body for n in ast.walk(part) if isinstance(n, ast.Name)}
        ignored = set(parameters(node)) - read - {"self"}
        assert not {p for p in ignored if p not in UNREAD and f"{p} of {name}" not in UNREAD}, name


def settings_of(where):
    module, by_value, others = MODULES[where]
    for name, function in functions(module):
        found = settings.checks_of(function, by_value, others, APART)
        for parameter, check in found.items():
            yield name, function, parameter, check.func


@pytest.mark.parametrize("where", MODULES)
def test_every_setting_refuses_what_is_none(where):
    """A setting is looked at before a call does anything, so nothing else need be given."""
    found = list(settings_of(where))
    assert found
    refused = {
        settings._member: ["no such word", 99, 0.5],
        settings._whole: [0.5, 2.0, [0, 0.5]],
        settings.check_number: ["1.0", b"1", 10**400],
        settings._flag: ["no", b"yes"],
    }
    for name, function, parameter, check in found:
        wrong = refused[check]
        for value in wrong:
            with pytest.raises(ParameterError, match=parameter) as told:
                function(**{parameter: value})
            assert name in str(told.value)


def test_a_word_that_is_nearly_right_is_named():
    with pytest.raises(ParameterError, match=r"write matmul_perf_mode\.double_row"):
        nisa.nc_matmul(perf_mode="doublerow")
    with pytest.raises(ParameterError, match=r"write engine\.vector"):
        old_isa.tensor_copy(engine="vektor")


def test_an_integer_stands_for_a_member_with_a_warning():
    check = settings.checks_of(nisa.dma_copy, str)["dge_mode"]
    with pytest.warns(nkisim.NkiWarning, match=r"write dge_mode\.none"):
        assert check("nisa.dma_copy", 3) is nisa.dge_mode.none


def test_no_option_is_without_an_annotation():
    """A parameter whose default is a member of an enumeration is annotated as one."""
    for module, by_value, others in MODULES.values():
        for name, function in functions(module):
            checks = settings.checks_of(function, by_value, others)
            for parameter in inspect.signature(function).parameters.values():
                if isinstance(parameter.default, enum.Enum):
                    assert parameter.name in checks, (name, parameter.name)
