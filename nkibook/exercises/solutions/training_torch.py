"""Answers to the exercises on training graphs in PyTorch."""

import torch

from kernels.rmsnorm import nki_rms_norm, nki_rms_norm_backward


def silu_gradient(x, grad):
    class Silu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.kept = 1
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(x)
            return grad * (s + x * s * (1 - s))

    y = Silu.apply(x.requires_grad_())
    kept = y.grad_fn.kept
    return torch.autograd.grad(y, x, grad)[0], kept


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
