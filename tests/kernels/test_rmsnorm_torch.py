"""RMSNorm in PyTorch: defaults, the module, refusals.

Tolerances: in float32 a sum of a row may run in another order than PyTorch's, which moves the
result by a few 1e-7; 16-bit results agree within one step of their dtype, since either side rounds
a float32 value that may lie near the middle between two of them.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
import torch_devices  # noqa: E402, F401

from kernels.rmsnorm.torch_op import RMSNorm, rms_norm  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {
    torch.float32: {"rtol": 2e-6, "atol": 2e-6},
    torch.float16: {"rtol": 2**-10, "atol": 1e-6},
    torch.bfloat16: {"rtol": 2**-7, "atol": 1e-6},
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_defaults_are_pytorchs(dtype):
    """No weight is ones; eps is float32's, which shows on small inputs."""
    x = 0.01 * torch.randn(130, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    torch.testing.assert_close(rms_norm(x, (300,)), F.rms_norm(x, (300,)), **TOLERANCE[dtype])


class TestModule:
    def test_is_a_drop_in(self):
        torch.manual_seed(0)
        theirs = torch.nn.RMSNorm(12, eps=1e-4)
        torch.nn.init.normal_(theirs.weight)
        ours = RMSNorm(12, eps=1e-4)
        assert isinstance(ours, torch.nn.RMSNorm)
        ours.load_state_dict(theirs.state_dict())
        x = torch.randn(3, 5, 12)
        torch.testing.assert_close(ours(x), theirs(x), **TOLERANCE[torch.float32])
        assert repr(ours) == repr(theirs)

    @pytest.mark.parametrize("options", [{}, {"elementwise_affine": False}, {"eps": 0.5}])
    def test_options(self, options):
        x = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
        expected = torch.nn.RMSNorm((3, 5), **options)(x)
        torch.testing.assert_close(RMSNorm((3, 5), **options)(x), expected)

    def test_trains_as_pytorchs(self):
        """Two layers, twenty steps: the losses stay together while rounding errors are carried."""

        def train(norm):
            torch.manual_seed(3)
            model = torch.nn.Sequential(
                torch.nn.Linear(8, 33), norm(33), torch.nn.SiLU(), torch.nn.Linear(33, 1)
            )
            x = torch.randn(150, 8)
            target = x[:, :1] * x[:, 1:2]
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
            losses = []
            for _ in range(20):
                loss = F.mse_loss(model(x), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses

        ours, theirs = train(RMSNorm), train(torch.nn.RMSNorm)
        assert ours == pytest.approx(theirs, rel=1e-3)
        assert ours[-1] < 0.8 * ours[0]


@pytest.mark.parametrize(
    ("x", "shape", "weight", "error", "message"),
    [
        (torch.ones(4, 6), (5,), torch.ones(5), ValueError, r"\(5,\) and x \(4, 6\)"),
        (torch.ones(4, 6), (6,), torch.ones(5), ValueError, r"normalized_shape is \(6,\)"),
        (torch.ones(4, 6), (6,), torch.ones(1, 6), ValueError, "must be equal"),
        (torch.ones(4, 6), (), None, ValueError, "no axis"),
    ],
)
def test_refused_inputs(x, shape, weight, error, message):
    with pytest.raises(error, match=message):
        rms_norm(x, shape, weight)


@pytest.mark.parametrize(
    ("x", "weight", "eps", "message"),
    [
        (torch.ones(4, 6), [1.0] * 6, None, "weight is a list"),
        (torch.ones(4, 6), None, "1e-5", "eps is '1e-5', a str"),
        (torch.ones(0, 6), None, "1e-5", "eps is '1e-5', a str"),
    ],
)
def test_refused_types(x, weight, eps, message):
    for norm, expected in ((F.rms_norm, None), (rms_norm, message)):
        with pytest.raises(TypeError, match=expected):
            norm(x, (6,), weight, eps)
