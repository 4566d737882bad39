"""Answers to the exercises on kernels in a Llama of Hugging Face."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
from kernels.cross_entropy.torch_op import cross_entropy


def causal_loss(logits, labels):
    return cross_entropy(logits[:, :-1], labels[:, 1:],
                         ignore_index=-100, reduction="mean")


def kernel_takes(queries, keys, head, window):
    hides = window is not None and keys > window
    return head <= 128 and queries in (1, keys) and not hides


def rows_for_halves(weight, heads):
    rows, columns = weight.shape
    pairs = weight.reshape(heads, -1, 2, columns)  # (head, pair, which, ...)
    return pairs.swapaxes(1, 2).reshape(rows, columns)
