"""Assignments leave no copy behind where the instruction can write the target itself."""

import numpy as np

import nkisim.frontends.neuronxcc.nki.isa as nisa
from nkisim.frontends.neuronxcc import nki
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.ir.dtypes import bfloat16


def opcodes(kernel, *args):
    program = kernel.specialize(args, {}).program
    return [i.opcode for i in program.instructions if i.opcode != "dma_copy"]


def test_an_instruction_with_two_results_writes_the_first_where_it_is_assigned():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rows, columns = x.shape
        half = columns // 2
        tile, both = nl.load(x), nl.ndarray(x.shape, x.dtype)
        total = nl.ndarray((rows, 2), np.float32)
        for k in nl.affine_range(2):
            part = nl.ds(k * half, half)
            both[:, part] = nisa.activation_reduce(
                np.exp, tile[:, part], reduce_op=np.add, reduce_res=total[:, k : k + 1]
            )
        nl.store(out, nl.multiply(both, total[:, 1:2]))
        return out

    x = np.linspace(-2, 2, 7 * 6, dtype=np.float32).reshape(7, 6)
    exp = np.exp(x.astype(float))
    wanted = exp * exp[:, 3:].sum(1, keepdims=True)
    np.testing.assert_allclose(kernel(x), wanted, rtol=1e-5)
    assert opcodes(kernel, x) == ["activation_reduce"] * 2 + ["tensor_scalar"]


def test_a_transpose_of_bf16_writes_an_fp32_tile_and_a_rounding_copy_stays():
    @nki.jit
    def kernel(x, rounds):
        out = nl.ndarray((x.shape[1], x.shape[0]), np.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        flipped = nl.ndarray(out.shape, np.float32, buffer=nl.psum)
        if rounds:
            flipped[...] = nl.copy(nl.copy(nisa.nc_transpose(tile)), dtype=bfloat16)
        else:
            flipped[...] = nisa.nc_transpose(tile)
        nl.store(out, nl.copy(flipped))
        return out

    x = np.linspace(-1, 1, 5 * 9, dtype=np.float32).reshape(5, 9)
    exact = x.astype(bfloat16)
    np.testing.assert_array_equal(kernel(exact, False), exact.T.astype(np.float32))
    assert opcodes(kernel, exact, False) == ["nc_transpose", "tensor_copy"]
    np.testing.assert_array_equal(kernel(x, True), x.T.astype(bfloat16).astype(np.float32))


def test_an_iteration_that_its_mask_leaves_out_adds_and_assigns_nothing():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile, kept = nl.load(x), nl.zeros(x.shape, x.dtype)
        i = nl.arange(x.shape[0])[:, None]
        for k in nl.affine_range(3):
            inside = i + 100 * k < x.shape[0]  # all of it, then nothing
            part = nl.ndarray(x.shape, x.dtype)
            part[...] = nl.exp(tile, mask=inside)
            kept += nl.multiply(part, 2.0, mask=inside)
        nl.store(out, kept)
        return out

    x = np.linspace(-1, 1, 7 * 5, dtype=np.float32).reshape(7, 5)
    np.testing.assert_allclose(kernel(x), 2 * np.exp(x), rtol=1e-6)
    assert opcodes(kernel, x) == ["memset", "activation", "tensor_scalar", "tensor_tensor"]
