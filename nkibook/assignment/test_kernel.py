"""pytest --nkisim: the kernel, by the cases that students see."""

import pytest


@pytest.mark.parametrize("dialect", ["nki"])
def test_centred(judged, dialect):
    judged(f"{dialect}/kernel.py:centred", f"{dialect}/task.toml")
