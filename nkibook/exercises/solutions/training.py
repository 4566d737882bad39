"""Answers to the exercises on training graphs."""

import jax
import torch

from kernels.rmsnorm import nki_rms_norm, nki_rms_norm_backward


def silu_gradient(x, grad):
    def forward(x):
        return x * jax.nn.sigmoid(x), (x,)

    def backward(residuals, grad):
        (x,) = residuals
        s = jax.nn.sigmoid(x)
        return grad * (s + x * s * (1 - s))

    _, residuals = forward(x)
    kept = sum(r.size for r in residuals) // x.size
    return backward(residuals, grad), kept


def norm_gradients(x, weight):
    class Norm(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            y, invvar = nki_rms_norm(x, weight, 1e-5)
            ctx.save_for_backward(x, weight, invvar)
            return y

        @staticmethod
        def backward(ctx, grad_y):
            return nki_rms_norm_backward(grad_y, *ctx.saved_tensors)

    x.requires_grad_()
    weight.requires_grad_()
    y = Norm.apply(x, weight)
    return torch.autograd.grad(y, (x, weight), torch.ones_like(y))


def calls_of_nested_checkpoints():
    forward, backward = 5, 2
    return forward, backward
