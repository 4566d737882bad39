"""Answers to the exercises on a transformer in PyTorch."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import torch

from kernels.cross_entropy import nki_cross_entropy
from kernels.rope import nki_rope


def calls_of_a_step(layers):
    return 7 + 22 * layers


def rope_gradient(x, grad, cos, sin):
    class Rope(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, cos, sin):
            ctx.save_for_backward(cos, sin)
            return nki_rope(x, cos, sin)

        @staticmethod
        def backward(ctx, grad):
            cos, sin = ctx.saved_tensors
            return nki_rope(grad, cos, sin, inverse=True), None, None

    y = Rope.apply(x.requires_grad_(), cos, sin)
    return torch.autograd.grad(y, x, grad)[0]


def padded_loss(logits, targets, keep):
    loss, _ = nki_cross_entropy(logits, targets)
    return (loss * keep).sum() / keep.sum()
