"""From the text that a custom call carries to the program it names."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.runtime.frameworks.programs import ConfigError, UnknownProgramError, find_program


class ArrayKernel(nki.FrameworkKernel):
    def is_framework_tensor(self, t):
        return isinstance(t, np.ndarray)

    def map_framework_tensor(self, t):
        return t.shape, t.dtype

    def translate_to_neuron_dtype(self, _dtype):
        return _dtype


def triple(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.load(x) * 3.0)
    return out


@pytest.mark.parametrize("kind", [str, str.encode])
def test_a_config_leads_to_its_program(kind):
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    config, inputs, outputs = ArrayKernel(triple).dump_config(x)
    (out,) = find_program(kind(config)).run([x])
    np.testing.assert_array_equal(out, 3 * x)
    assert inputs == ["x"]
    assert outputs == ["output0"]


@pytest.mark.parametrize("config", ["", "???", "W10=", "e30="])  # the last two: [] and {}
def test_other_text_is_refused(config):
    with pytest.raises(ConfigError, match="not a backend_config of nkisim"):
        find_program(config)


def test_a_program_of_another_process(run_python):
    x = np.ones((2, 2), np.float32)
    config, _, _ = ArrayKernel(triple).dump_config(x)
    run_python(
        f"""
        import pytest
        from nkisim.runtime.frameworks.programs import UnknownProgramError, find_program
        with pytest.raises(UnknownProgramError, match="has not traced"):
            find_program({config!r})
        """
    )
    assert issubclass(UnknownProgramError, LookupError)
