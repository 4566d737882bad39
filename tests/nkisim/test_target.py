"""Which NeuronCore generation a kernel is traced, checked and timed for."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from nkisim.errors import ParameterError
from nkisim.machine import GEN2, GEN3, GEN4
from nkisim.machine.target import FLAGS, OVERRIDE, PLATFORMS, target

X = np.ones((128, 8), np.float32)


def copying(**options):
    seen = []

    @nki.jit(**options)
    def copy(x):
        seen.append((nisa.get_nc_version(), nl.tile_size.total_available_sbuf_size))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x))
        return out

    return copy, seen


@pytest.fixture
def clean(monkeypatch):
    monkeypatch.delenv(OVERRIDE, raising=False)
    monkeypatch.delenv(FLAGS, raising=False)
    return monkeypatch


names = st.sampled_from([None, *PLATFORMS])


@settings(max_examples=60)
@given(names, names, names, st.sampled_from(["--target={}", "--target {}", "-O1 --target={} --x"]))
def test_the_strongest_that_is_given_counts(override, flag, platform, form):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(OVERRIDE, override or "")
        patch.setenv(FLAGS, form.format(flag) if flag else "--model-type=transformer")
        machine, source = target(platform)
    given = override or flag or platform
    assert machine is (PLATFORMS[given] if given else GEN2)
    assert (source == "") == (given is None)
    assert given is None or given in source


def test_traces_checks_and_times_follow_it(clean):
    copy, seen = copying()
    copy(X)
    old = nkisim.profile(copy, X)
    clean.setenv(OVERRIDE, "trn2")
    copy(X)  # not the trace for another machine
    new = nkisim.profile(copy, X)
    assert list(dict.fromkeys(seen)) == [
        (nisa.nc_version.gen2, GEN2.sbuf_usable_bytes),
        (nisa.nc_version.gen3, GEN3.sbuf_usable_bytes),
    ]
    assert (old.machine, new.machine) == (GEN2, GEN3)
    assert "for NeuronCore-v3 by NEURON_PLATFORM_TARGET_OVERRIDE=trn2" in new.summary()
    assert " by NEURON" not in old.summary()
    assert new.latency_us != old.latency_us
    assert nl.tile_size.total_available_sbuf_size == GEN3.sbuf_usable_bytes


def test_the_environment_is_stronger_than_the_decorator_and_weaker_than_on(clean):
    copy, seen = copying(platform_target="trn1")
    clean.setenv(FLAGS, "--target=trn2")
    copy(X)
    assert seen[-1][0] == nisa.nc_version.gen3
    copy.on(GEN2)(X)
    assert seen[-1][0] == nisa.nc_version.gen2


@pytest.mark.parametrize("variable", [OVERRIDE, FLAGS])
def test_an_unknown_name_is_told_with_the_variable(clean, variable):
    clean.setenv(variable, "trn9" if variable is OVERRIDE else "--target trn9")
    copy, _ = copying()
    with pytest.raises(ParameterError, match=rf"{variable}=.*trn9") as caught:
        copy(X)
    assert "trn2" in str(caught.value)


def test_trn3_is_a_target(clean):
    clean.setenv(OVERRIDE, "trn3")
    assert target().machine is GEN4
    copy, _ = copying()
    assert nkisim.profile(copy, X).machine is GEN4


@pytest.mark.parametrize("name", ["trn3pre", "TRN3PRE", " trn3pre "])
@pytest.mark.parametrize("variable", [OVERRIDE, FLAGS])
def test_what_the_compiler_called_trn3_before_its_release(clean, name, variable):
    clean.setenv(variable, name if variable is OVERRIDE else f"--target {name} --lnc 2")
    assert target().machine is GEN4


@pytest.mark.parametrize(
    ("name", "fix"),
    [("trn3-pre", "write trn3pre"), ("trn2.48xlarge", "write trn2"), ("inf1", "v1")],
)
def test_a_name_that_is_nearly_one(clean, name, fix):
    clean.setenv(OVERRIDE, name)
    with pytest.raises(ParameterError, match=fix):
        target()


def test_torch_neuronx_tells_the_platform(clean):
    from torch_neuronx.utils import get_platform_target

    assert get_platform_target() == "trn1"
    clean.setenv(FLAGS, "--target=trn2")
    assert get_platform_target() == "trn2"
    clean.setenv(OVERRIDE, "trn3pre")
    assert get_platform_target() in ("trn3", "trn3pre")
    clean.setenv(OVERRIDE, "trn9")
    with pytest.raises(ParameterError, match="trn9"):
        get_platform_target()
