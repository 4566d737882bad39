"""Answers to the exercises of the page from a slow operation to a kernel."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def squared_error(x, y):
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    difference = nl.subtract(nl.load(x), nl.load(y))
    total = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation_reduce(op=nl.square, data=difference,
                           reduce_op=nl.add, reduce_res=total)
    nl.store(out, value=total)
    return out
