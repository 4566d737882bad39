"""Documented constraints of `nki.language`: broken, shown to hold, or exempt.

See `constraints.nki` for what the tables hold.
"""

from __future__ import annotations

from constraints.nki import DOCUMENTED, HOST, OLD, TRN2, TRN3

# fmt: off

_H = "nl.ndarray((256, 8), nl.float32, nl.hbm)"
_EDGES = "nl.ndarray((130, 9), nl.float32, nl.hbm)"

BROKEN: dict[str, tuple[str, str, str, str]] = {}
SHOWN: dict[str, tuple[str, str]] = {}

_TILE_OR_SCALAR = "x, y: tile or scalar"
_INTEGER = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
_AXIS_ONLY = ("sum", "max", "min", "mean", "prod", "var", "all")

# What many functions share: a sentence of the table, and a call that breaks it beside one that does
# not. {f} is the function.
_ALIKE_BROKEN = {
    "x is a tile": ("nl.{f}(1.0)", "nl.{f}(s(8, 4))", "takes tiles"),
    _TILE_OR_SCALAR: ("nl.{f}(s(8, 4), 'two')", "nl.{f}(s(8, 4), s(8, 4))", "tiles .*and numbers"),
    "same shape required, no broadcasting (known issue, NKI 0.4 notes)": (
        "nl.{f}(s(8, 4), s(8, 2, 2))", "nl.{f}(s(8, 4), s(8, 4))", "as many partitions"),
    "not supported on hardware; use multiply(x, reciprocal(y))": None,
    "at least one operand is a tile": ("nl.{f}(1, 2)", "nl.{f}({x}, 1)", "takes tiles"),
    "integer inputs": ("nl.{f}(s(8, 4), 1)", "nl.{f}(s(8, 4, nl.int32), 1)", "integer"),
    "integer input": ("nl.{f}(s(8, 4))", "nl.{f}(s(8, 4, nl.int32))", "integer"),
    "axis: trailing contiguous free dims only, never 0": ("nl.{f}(s(8, 4), axis=0)",
        "nl.{f}(s(8, 4), axis=1)", "axis"),
    "compile-time bounds": ("nl.{f}(nisa.register_alloc(2))", "nl.{f}(2)",
        "unrolled while tracing"),
}
_ALIKE_SHOWN = {
    "result dtype = input tile dtype (1/0 values); use dtype=uint8 for boolean-like":
        "a = nl.{f}(s(8, 4, nl.bfloat16), 2.0)\n"
        "assert a.dtype == 'bfloat16' and set(v(a).reshape(-1).tolist()) <= {{0.0, 1.0}}\n"
        "assert nl.{f}(s(8, 4), 2.0, dtype=nl.uint8).dtype == 'uint8'",
    "output dtype = x.dtype unless dtype given":
        "assert nl.{f}(s(8, 4, nl.bfloat16){axis}).dtype == 'bfloat16'\n"
        "assert nl.{f}(s(8, 4, nl.bfloat16){axis}, dtype=nl.float32).dtype == 'float32'",
    "inputs should be 0/1":
        "one, zero = s(8, 4), nl.zeros((8, 4), nl.float32)\n"
        "assert (v(nl.{f}(one, zero)) == np.{f}(v(one), v(zero))).all()\n"
        "assert (v(nl.{f}(one, one)) == np.{f}(v(one), v(one))).all()",
    "input should be 0/1; otherwise use equal(x, 0)": "assert (v(nl.{f}(s(8, 4))) == 0).all()",
    "buffer defaults to sbuf": "assert nl.{f}((8, 4), {value}nl.float32).buffer is nl.sbuf",
    "not supported on hardware; use multiply(x, reciprocal(y))":
        "with warns('simulators only'):\n    a = nl.{f}(s(8, 4), s(8, 4))\n"
        "assert (v(a) == v(nl.multiply(s(8, 4), nl.reciprocal(s(8, 4))))).all()",
    "simulation only; fails to compile for hardware":
        "with warns('simulators only'):\n    nl.{f}(s(8, 4), s(8, 4))",
}

for _key, _sentence in DOCUMENTED.items():
    _name = _key.removeprefix("language.").partition("#")[0]
    _target = TRN3 if _name in ("abs_max", "abs_min") else TRN2
    _words = {
        "f": _name,
        "axis": ", axis=1" if _name in _AXIS_ONLY else "",
        "x": "s(8, 4, nl.int32)" if _name in _INTEGER else "s(8, 4)",
        "value": "2.0, " if _name == "full" else "",
    }
    if not _key.startswith("language."):
        continue
    if _ALIKE_BROKEN.get(_sentence):
        _broken, _kept, _says = _ALIKE_BROKEN[_sentence]
        BROKEN[_key] = (_target, _broken.format(**_words), _kept.format(**_words), _says)
    elif _sentence in _ALIKE_SHOWN:
        SHOWN[_key] = (_target, _ALIKE_SHOWN[_sentence].format(**_words))

BROKEN |= {
    **{
        f"language.{name}#0": (
            TRN2,
            f"nl.{name}(s(8, 4), s(8, 4))",
            f"nl.{name}(s(8, 4, nl.int32), s(8, 4, nl.int32))",
            "integer",
        )
        for name in _INTEGER
    },
    "language.hbm#0": (HOST, "launched(nl.hbm)", "launched(nl.shared_hbm)",
        "outputs are in shared HBM"),
    "language.power#2": (TRN2, "nl.power(s(8, 4), 2.0)",
        "nl.power(s(8, 4), nl.full((8, 4), 2.0, nl.float32))", "both operands are tiles"),
    "language.load#0": (TRN2, "nl.load(s(8, 4))", "nl.load(h(8, 4))", "HBM"),
    "language.store#0": (TRN2, "nl.store(sh(8, 4), p(8, 4))",
        "nl.store(sh(8, 4), nl.copy(p(8, 4)))", "PSUM"),
    "language.transpose#0": (TRN2, "nl.transpose(s(8, 4, 2))", "nl.transpose(s(8, 4))", "2"),
    "language.broadcast_to#0": (TRN2, "nl.broadcast_to(s(8, 1), (8, 4, 2))",
        "nl.broadcast_to(s(8, 1).expand_dim(2), (8, 4, 2))", "as many axes"),
    "language.broadcast_to#1": (TRN2, "nl.broadcast_to(h(8, 1), (8, 4))",
        "nl.broadcast_to(nl.load(h(8, 1)), (8, 4))", "SBUF or PSUM"),
    "language.ndarray#0": (TRN2, "nl.ndarray((8, 4), nl.float32, buffer='sbuf')",
        "nl.ndarray((8, 4), nl.float32, buffer=nl.sbuf)", "buffer"),
    "language.ndarray#1": (TRN2, "nl.ndarray((8, 4), nl.float32, address=4096)",
        "nl.ndarray((8, 4), nl.float32, address=(0, 4096))", "start partition, byte"),
    **{
        key: (
            TRN2,
            "nl.ndarray((8, 4), nl.float32, buffer=nl.psum, address=(0, 512))",
            "nl.ndarray((8, 4), nl.float32, buffer=nl.psum, address=(0, 2048))",
            "bank",
        )
        for key in ("language.psum#0", "language.ndarray#2")
    },
    "language.ndarray#3": (TRN2, "nl.ndarray((129, 4), nl.float32)",
        "nl.ndarray((128, 4), nl.float32)", "exceeds maximum 128"),
    "language.rsqrt#2": (TRN2, "nl.rsqrt(p(8, 4))", "nl.rsqrt(nl.copy(p(8, 4)))", "PSUM"),
    "language.dropout#0": (TRN2, "nl.dropout(s(8, 4), s(8, 2))", "nl.dropout(s(8, 4), s(8, 1))",
        "one element a partition"),
    "language.random_seed#0": (TRN2, "nl.random_seed(5)", "nl.random_seed(s(1, 1, nl.int32))",
        "32-bit"),
    "language.matmul#0": (TRN2, "nl.matmul(s(8, 129), s(8, 4), transpose_x=True)",
        "nl.matmul(s(8, 128), s(8, 512), transpose_x=True)", "128"),
    "language.matmul#1": (TRN2, "nl.matmul(s(8, 16), s(16, 4))",
        "nl.matmul(nl.copy(nl.transpose(s(8, 16))), s(16, 4), transpose_x=True)",
        "transpose_x=True"),
    "language.no_reorder#0": (TRN2, "with nl.no_reorder():\n    nl.fori_loop(0, 2, lambda i: None)",
        "with nl.no_reorder():\n    [s(8, 4) for i in nl.affine_range(2)]", "no_reorder"),
    "language.load_transpose2d#0": (TRN2, "nl.load_transpose2d(s(8, 4))",
        "nl.load_transpose2d(h(8, 4))", "HBM"),
    "language.gather_flattened#0": (TRN2, "nl.gather_flattened(s(8, 4), s(8, 2))",
        "nl.gather_flattened(s(8, 4), nl.copy(s(8, 2), nl.uint32))", "integer type"),
    "language.dynamic_range#0": (TRN2, "list(nl.dynamic_range(4))",
        "nl.fori_loop(0, 4, lambda i: None)", "nl.fori_loop"),
    "language.dynamic_range#1": (OLD, "list(nl.dynamic_range(0, 4, 0))",
        "list(nl.dynamic_range(0, 4, 1))", "positive integer"),
    "language.fori_loop#0": (TRN2, "nl.fori_loop(0, nisa.register_alloc(2), lambda i: "
        "nisa.register_move(i, 1))",
        "nl.fori_loop(0, nisa.register_alloc(2), lambda i: "
        "nisa.register_move(nisa.register_alloc(0), i))",
        "the variable of a loop is not"),
    "language.fori_loop#1": (TRN2, "nl.fori_loop(0, 2, lambda i: None, step=-1)",
        "nl.fori_loop(0, 2, lambda i: None, step=1)", "positive integer"),
    "language.fori_loop#5": (TRN2, "nl.fori_loop(0, nisa.NkiScalar(2, nl.int64), lambda i: None)",
        "nl.fori_loop(0, nisa.NkiScalar(2, nl.int32), lambda i: None)", "32 bits"),
    "language.tiles#0": (TRN2, f"nl.tiles({_H}, tile_shape=(128,))",
        f"nl.tiles({_H}, tile_shape=(128, 8))", "two axes or more"),
    "language.tiles#1": (TRN2, "nl.tiles(s(32, 8, 4), tile_shape=(8, 4))",
        "nl.tiles(h(32, 8, 4), tile_shape=(8, 4))", "in front of the tiles"),
    "language.blocks#0": (TRN2, f"nl.blocks({_H}, tile_shape=(128, 8), block_shape=(2,))",
        f"nl.blocks({_H}, tile_shape=(128, 8), block_shape=(2, 1))", "each axis"),
    "language.alloc_tiles#0": (TRN2, "nl.alloc_tiles(tile_shape=[128, 8], element_shape=(256, 8), "
        "buffer=nl.sbuf, dtype=nl.float32)",
        "nl.alloc_tiles(tile_shape=(128, 8), element_shape=(256, 8), buffer=nl.sbuf, "
        "dtype=nl.float32)", "tuple of positive integers"),
    "language.alloc_tiles#1": (TRN2, "nl.alloc_tiles(tile_shape=(128, 8), element_shape=(256, 8), "
        "buffer='sbuf', dtype=nl.float32)",
        "nl.alloc_tiles(tile_shape=(128, 8), element_shape=(256, 8), buffer=nl.hbm, "
        "dtype=nl.float32)", "nl.sbuf"),
    "language.fori_loop#2": (TRN2, "nl.fori_loop(0, 2, lambda i: i)",
        "nl.fori_loop(0, 2, lambda i: None)", "returns nothing"),
    "language.fori_loop#4": (TRN2, "with nl.no_reorder():\n    nl.fori_loop(0, 2, lambda i: None)",
        "def body(i):\n    with nl.no_reorder():\n        s(8, 4)\nnl.fori_loop(0, 2, body)",
        "no_reorder"),
    "language.fori_loop#3": (TRN2,
        "made = []\nnl.fori_loop(0, 2, lambda i: made.append(s(8, 4)))\nnl.copy(made[0])",
        "made = s(8, 4)\nnl.fori_loop(0, 2, lambda i: nl.copy(made) and None)\nnl.copy(made)",
        "outside of the body that declares it"),
    "language.while_loop#1": (TRN2, "nl.while_loop(nisa.register_alloc(1), lambda r: 0)",
        "nl.while_loop(nisa.register_alloc(1), lambda r: nisa.register_alloc(0))",
        "next condition"),
    "language.while_loop#2": (TRN2,
        "with nl.no_reorder():\n    nl.while_loop(nisa.register_alloc(0), lambda r: r)",
        "nl.while_loop(nisa.register_alloc(0), lambda r: r)", "no_reorder"),
    "language.program_id#0": (TRN2, "nl.program_id(1)", "nl.program_id(0)", "axis"),
    "language.shared_constant#0": (TRN2, "nl.shared_constant([object()])",
        "nl.shared_constant(np.ones((8, 4), np.float32))", "dtype"),
    "language.device_print#0": (TRN2, "nl.device_print('x', p(8, 4))",
        "nl.device_print('x', nl.copy(p(8, 4)))", "SBUF and HBM"),
    "language.device_print#1": (TRN2, "nl.device_print(5, s(8, 4))",
        "nl.device_print('5', s(8, 4))", "string"),
}

SHOWN |= {
    "language.NkiTensor#0": (TRN2,
        "a = nl.load(nl.shared_constant(np.arange(32, dtype=np.float32).reshape(8, 4)))\n"
        "b = a[2:8:2, 1:4]\nflat = np.arange(32)\ni, j = np.mgrid[:3, :3]\n"
        "at = b.offset + i * b.strides[0] + j * b.strides[1]\nassert (v(b) == flat[at]).all()"),
    "language.NkiTensor#1": (TRN2,
        "for view in (lambda t: t.permute((1, 0)), lambda t: t.broadcast(0, 8),\n"
        "             lambda t: t.reshape_dim(0, (1, 1)), lambda t: t.flatten_dims(0, 1)):\n"
        "    refused(lambda: view(s(1, 4)), 'axis 0')"),
    "language.NkiTensor#2": (TRN2,
        "assert s(8, 4)[2].shape == (1, 4) and h(8, 4)[2].shape == (4,)"),
    "language.copy#1": (TRN2,
        "bits = nl.full((8, 4), 0x7FA00001, nl.uint32)\n"
        "kept = nl.copy(bits.view(nl.float32)).view(nl.uint32)\n"
        "assert (v(kept) == 0x7FA00001).all()"),
    "language.abs_max#0": (TRN3,
        "assert (v(nl.abs_max(s(8, 4), nl.full((8, 1), -3.0, nl.float32))) == -3.0).all()"),
    **{
        f"language.{name}#{at}": (
            TRN3,
            f"a, r = s(8, 4), s(8, 1)\n"
            f"nisa.tensor_scalar(a, s(8, 4), nl.{name}, -3.0)\n"
            f"assert (v(a) == {wanted}).all()\n"
            f"nisa.tensor_scalar_reduce(a, s(8, 4), nl.{name}, -3.0, nl.minimum, r)\n"
            f"assert (v(r) == {wanted}).all()",
        )
        for name, at, wanted in (("abs_max", 1, -3.0), ("abs_min", 0, 1.0))
    },
    "language.sin#2": (TRN2,
        "x = nl.full((8, 4), 9.0, nl.float32)\nimport warnings\nwith warnings.catch_warnings():\n"
        "    warnings.simplefilter('error')\n"
        "    assert np.allclose(v(nl.sin(x)), np.sin(9.0), atol=1e-5)\n"
        "with warns('valid from -3.14'):\n    nisa.activation(x, nl.sin, x)\n    v(x)"),
    "language.mean#2": (TRN2,
        "assert (v(nl.mean(s(8, 300, nl.bfloat16), axis=1, dtype=nl.float32)) == 1.0).all()"),
    "language.var#2": (TRN2,
        "assert nl.var(s(8, 2, 4), axis=2, keepdims=False).shape == (8, 2, 1)"),
    "language.rms_norm#0": (TRN2,
        "zero = nl.zeros((8, 4), nl.float32)\ntiny = nl.full((8, 4), 1e-3, nl.float32)\n"
        "assert (v(nl.rms_norm(zero, s(8, 4), axis=1, n=4)) == 0).all()\n"
        "assert np.allclose(v(nl.rms_norm(tiny, s(8, 4), axis=1, n=4)), 0.5**0.5, atol=1e-3)"),
    "language.where#0": (TRN2,
        "assert (v(nl.where(s(8, 4), 2.0, 3.0)) == 2.0).all()\n"
        "assert (v(nl.where(nl.zeros((8, 4), nl.float32), 2.0, 3.0)) == 3.0).all()"),
    "language.zeros_like#0": (TRN2, "assert nl.zeros_like(p(8, 4)).buffer is nl.sbuf"),
    "language.empty_like#0": (TRN2,
        "a = nl.empty_like(p(8, 4, nl.bfloat16))\n"
        "assert a.buffer is nl.psum and a.dtype == 'bfloat16'"),
    "language.expand_dims#0": (TRN2,
        "assert nl.expand_dims(s(8, 4), 1).shape == (8, 1, 4)\n"
        "assert nl.expand_dims(s(8, 4), 2).shape == (8, 4, 1)"),
    "language.matmul#2": (TRN2,
        "assert nl.matmul(s(8, 4), s(8, 5), transpose_x=True).buffer is nl.psum"),
    "language.NkiGrid#0": (TRN2, f"g = nl.tiles({_H}, tile_shape=(128, 4))\n"
        "assert isinstance(g[1, 0], nl.NkiTileGrid) and g[1, 0].data.shape == (128, 4)"),
    "language.NkiGrid#1": (TRN2, f"g = nl.tiles({_EDGES}, tile_shape=(128, 4))\n"
        "assert g.shape == (2, 3) and g[1, 2].element_shape == (2, 1) and g[1, 2].is_remainder"),
    "language.dynamic_range#2": (OLD,
        "assert len(list(nl.dynamic_range(nisa.register_alloc(3)))) == 3"),
    "language.while_loop#0": (TRN2, "nl.while_loop(nisa.register_alloc(0), lambda r: 1 / 0)"),
    "language.num_programs#0": (TRN2, "assert nl.num_programs() == nl.num_programs(0) == 1"),
    "language.shared_constant#1": (HOST,
        "import nki\n@nki.jit\ndef kernel(x):\n"
        "    out = nl.ndarray((2, 4), nl.float32, buffer=nl.shared_hbm)\n"
        "    core = nl.program_id(0)\n"
        "    c = nl.shared_constant(np.arange(4, dtype=np.float32).reshape(1, 4))\n"
        "    nisa.dma_copy(out[core:core + 1], c)\n    return out\n"
        "assert (kernel[2](np.ones((2, 2), np.float32)) == np.arange(4)).all()"),
    "language.shared_identity_matrix#0": (TRN2,
        "a = nl.shared_identity_matrix(4)\n"
        "assert a.dtype == 'uint8' and (v(a) == np.eye(4)).all()"),
}

EXEMPT: dict[str, str] = {
    "language.copy#0": "says since when the API is stable",
    "language.load#1": "says since when it is there",
    "language.gather_flattened#1": "points to another function",
    "language.ds#0": "says what the documentation lacks",
    "language.shared_constant#2": "says what was tested on hardware",
    "language.device_print#2": "an environment variable of the device's runtime",
    "language.rand#0": "which generator a device uses; those here are the simulator's own",
}
