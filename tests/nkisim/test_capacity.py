"""What is alive at once, and the quick look that tells when it fits in any case."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nkisim
from nkisim.checking.capacity import check_capacity, lifetimes, may_overflow
from nkisim.errors import TileSizeError
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.ir.memory import Space
from nkisim.runtime.kernel import Kernel

LOOPS = {
    "affine": nl.affine_range,
    "sequential": nl.sequential_range,
    "static": nl.static_range,
    "Python": range,
}
WIDTHS = st.integers(5_000, 30_000)  # of 49,152 fp32 elements a partition
TREES = st.recursive(
    WIDTHS,
    lambda inner: st.tuples(
        st.sampled_from(sorted(LOOPS)), st.integers(1, 5), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@example([26_000, ("sequential", 4, [26_000])], 128)
@example([("sequential", 4, [26_000, ("static", 3, [10_000])])], 128)
@given(st.lists(TREES, min_size=2, max_size=4), st.sampled_from([33, 97, 128]))
def test_the_quick_look_misses_no_overflow(trees, rows):
    def kernel(x):
        out = nl.ndarray((128, 1), x.dtype, buffer=nl.shared_hbm)

        def run(tree):
            """Make a tile, or run a loop around others; they are used at the end of its body."""
            if isinstance(tree, int):
                return [nl.load(x[0:rows, 0:tree])]
            kind, count, body = tree
            for _ in LOOPS[kind](count):
                use([tile for inner in body for tile in run(inner)])
            return []

        def use(tiles):
            for tile in tiles:
                nl.store(out[0:rows], tile[:, 0:1] + 1.0)

        use([tile for tree in trees for tile in run(tree)])
        nl.store(out, nl.load(x[:, 0:1]))
        return out

    spec = nkisim.TensorSpec((128, 30_000), np.dtype(np.float32))
    with nkisim.checks(sbuf="off", loop="off"):
        trace = Kernel(kernel).specialize([spec], {}).program.trace
    found = list(check_capacity(trace, Space.SBUF, lifetimes(trace, [Space.SBUF])))
    assert not found or may_overflow(trace, Space.SBUF)


def test_the_quick_look_tells_loops_from_what_is_beside_them():
    """Ten tiles of a fifth of SBUF, one an iteration, fit; side by side they may not."""

    def kernel(x, loop):
        out = nl.ndarray((128, 10_000), x.dtype, buffer=nl.shared_hbm)
        for _ in loop(10):
            nl.store(out, nl.zeros((128, 10_000), x.dtype) + 1.0)
        return out

    spec = nkisim.TensorSpec((128, 1), np.dtype(np.float32))
    for loop, doubt in ((nl.sequential_range, False), (nl.static_range, True)):
        trace = Kernel(kernel).specialize([spec, loop], {}).program.trace
        assert may_overflow(trace, Space.SBUF) == doubt
        assert not list(check_capacity(trace, Space.SBUF, lifetimes(trace, [Space.SBUF])))


def overflows(kernel, space, **checks):
    trace = Kernel(kernel).specialize([nkisim.TensorSpec((64, 64), np.dtype(np.float32))], {})
    trace = trace.program.trace
    found = list(check_capacity(trace, space, lifetimes(trace, [space])))
    assert not found or may_overflow(trace, space)
    return [int(e.problem.split(" tiles alive")[0]) for e in found]


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
def test_what_is_filled_part_by_part_is_there(parts):
    """20 tiles of 16 KiB a partition. Those that one fill writes, it writes where they are used."""

    def kernel(x):
        out = nl.ndarray((20, 128, 4096), nl.float32, buffer=nl.shared_hbm)
        tiles = [nl.ndarray((128, 4096), nl.float32) for _ in range(20)]
        for tile in tiles:
            for n in range(parts):
                width = 4096 // parts
                tile[:, n * width : (n + 1) * width] = float(n)
        for i, tile in enumerate(tiles):
            nl.store(out[i], tile)
        return out

    assert overflows(kernel, Space.SBUF) == [20] * (parts > 1)


@pytest.mark.parametrize("tiles", [64, 65])
@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.filterwarnings("ignore::nkisim.NkiWarning")
def test_psum_tiles_of_few_partitions_do_not_share_bytes(tiles, rows):
    """Each has 256 bytes a partition, of 16 KiB."""

    def kernel(x):
        out = nl.ndarray((tiles, rows, 64), nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        products = [nisa.nc_matmul(tile[:, 0:rows], tile) for _ in range(tiles)]
        for i, product in enumerate(products):
            nl.store(out[i], nl.copy(product))
        return out

    assert overflows(kernel, Space.PSUM) == [65] * (tiles > 64)


@pytest.mark.parametrize(
    ("platform", "nbytes"), [("trn1", 180_224), ("trn2", 212_984), ("trn3", 245_752)]
)
def test_what_a_partition_has_for_a_kernel(platform, nbytes):
    def copy(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    def check(n):
        with nkisim.checks(sbuf="error"):
            Kernel(copy, platform=platform).specialize(
                [nkisim.TensorSpec((128, n), np.dtype(np.uint8))], {}
            )

    check(nbytes)
    with pytest.raises(TileSizeError, match=f"{nbytes:,} bytes a partition"):
        check(nbytes + 1)


@pytest.mark.parametrize("platform", ["trn1", "trn2", "trn3"])
def test_what_a_bank_of_psum_has_for_a_product(platform):
    """2 KiB a partition: 512 float32 columns, which is what the language says."""
    said = set()

    def product(x, y):
        said.add(nl.tile_size.psum_fmax)
        out = nl.ndarray((128, y.shape[1]), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(nisa.nc_matmul(nl.load(x), nl.load(y))))
        return out

    def check(n):
        operands = [nkisim.TensorSpec((128, k), np.dtype(np.float32)) for k in (128, n)]
        Kernel(product, platform=platform).specialize(operands, {})

    check(512)
    assert said == {512}
    with pytest.raises(TileSizeError, match="513"):
        check(513)
