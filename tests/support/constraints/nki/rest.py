"""Documented constraints of `nki` itself, `nki.collectives` and `nki.typing`.

See `constraints.nki` for what the tables hold.
"""

from __future__ import annotations

from constraints.nki import DOCUMENTED, HOST, TRN2

# fmt: off

_KERNEL = (
    "def kernel({parameters}):\n"
    "    out = nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)\n"
    "    nisa.dma_copy(out, {source})\n"
    "    return out\n"
    "x = np.ones((2, 2), np.float32)\n"
)
_TARGET = "import os\nos.environ['NEURON_PLATFORM_TARGET_OVERRIDE']"
_ONE = _KERNEL.format(parameters="x", source="x")

BROKEN: dict[str, tuple[str, str, str, str]] = {
    "nki.jit#0": (HOST, f"{_TARGET} = 'trn9'\nlaunched(nl.shared_hbm)",
        f"{_TARGET} = 'gen3'\nlaunched(nl.shared_hbm)", "trn9"),
    "nki.jit#2": (HOST, f"{_ONE}nki.jit(kernel, platform_target='trn2')(x)",
        f"{_ONE}nki.jit(kernel, mode='trace')(x)", "platform_target"),
    "nki.jit#4": (HOST, "launched(nl.hbm)", "launched(nl.shared_hbm)", "outputs are in shared HBM"),
    "nki.jit#7": (HOST,
        "@nki.jit(compile_config=compiler.CompileConfig(barrier_check=True))\ndef part(a, b):\n"
        "    nisa.dma_copy(a, b)\n"
        + _KERNEL.format(parameters="x", source="x").replace("nisa.dma_copy", "part")
        + "nki.jit(kernel)(x)",
        "def part(a, b):\n    nisa.dma_copy(a, b)\n"
        + _KERNEL.format(parameters="x", source="x").replace("nisa.dma_copy", "part")
        + "nki.jit(kernel)(x)", "under one configuration"),
    "compiler.CompileConfig#0": (HOST,
        "import os\nos.environ['NKI_PREFETCH_RING_SIZE'] = '4'\ntry:\n"
        "    compiler.CompileConfig(prefetch_auto=True)\nfinally:\n"
        "    del os.environ['NKI_PREFETCH_RING_SIZE']",
        "compiler.CompileConfig(prefetch_auto=True)", "unset NKI_PREFETCH_RING_SIZE"),
    "compiler.SpecializationConfig#0": (HOST,
        "@nki.jit(compile_config=compiler.CompileConfig(dead_code_elim=False))\n"
        "def part(a, b):\n    nisa.dma_copy(a, b)\n"
        + _KERNEL.format(parameters="x", source="x").replace("nisa.dma_copy", "part")
        + "nki.jit(kernel)(x)",
        "@nki.jit(compile_config=compiler.CompileConfig(dead_code_elim=False))\n"
        "def part(a, b):\n    nisa.dma_copy(a, b)\n"
        + _KERNEL.format(parameters="x", source="x").replace("nisa.dma_copy", "part")
        + "allowed = compiler.SpecializationConfig(allow_nested_config_override=True)\n"
          "with warns('under one configuration'):\n"
          "    nki.jit(kernel, specialization_config=allowed)(x)", "allow_nested_config_override"),
    "nki.simulate#6": (TRN2, "nl.copy(nl.ndarray((8, 4), nl.float32))",
        "nl.copy(nl.zeros((8, 4), nl.float32))", "nothing wrote"),
}

SHOWN: dict[str, tuple[str, str]] = {
    "nki.jit#1": (HOST,
        "import os\nseen = []\n@nki.jit\ndef kernel(x):\n"
        "    out = nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)\n"
        "    seen.append(nl.num_programs())\n"
        "    nisa.dma_copy(out[nl.program_id(0)], x[nl.program_id(0)])\n"
        "    if nl.num_programs() == 1:\n        nisa.dma_copy(out[1], x[1])\n    return out\n"
        "x = np.ones((2, 2), np.float32)\nkernel(x)\nassert seen == [1]\n"
        "refused(lambda: kernel[3](x), '1 or 2')\nos.environ['NEURON_LOGICAL_NC_CONFIG'] = '1'\n"
        "try:\n    with warns('NEURON_LOGICAL_NC_CONFIG=1'):\n        kernel[2](x)\nfinally:\n"
        "    del os.environ['NEURON_LOGICAL_NC_CONFIG']\nassert seen == [1, 2, 2]\n"
        "os.environ['NEURON_LOGICAL_NC_CONFIG'] = '2'\ntry:\n    kernel(x)\nfinally:\n"
        "    del os.environ['NEURON_LOGICAL_NC_CONFIG']\nassert seen == [1, 2, 2, 2, 2]"),
    "nki.jit#3": (HOST,
        "import warnings\ndef rows(n):\n    yield from range(n)\n"
        + _KERNEL.format(parameters="xs, *, scale=1", source="xs[0]").replace(
            "    return out", "    for i in rows(2):\n        try:\n            raise ValueError\n"
            "        except ValueError:\n            nisa.dma_copy(out[i], xs[0][i])\n"
            "    return out")
        + "with warnings.catch_warnings():\n    warnings.simplefilter('error')\n"
          "    nki.jit(kernel)([x], scale=2)"),
    "nki.jit#6": (HOST,
        f"{_ONE}assert (nki.jit(kernel).with_schedule([('b', 'a')])(x) == x).all()"),
    "nki.simulate#1": (HOST,
        f"{_ONE}import torch\nassert type(nki.simulate(kernel)(x)) is np.ndarray\n"
        f"assert type(nki.simulate(kernel)(torch.ones(2, 2))) is torch.Tensor"),
    "nki.simulate#2": (HOST, f"{_ONE}assert (nki.simulate(kernel)(x) == x).all()"),
    "nki.simulate#3": (HOST,
        f"{_ONE}import os, torch\nfor switch in ('1', '0'):\n"
        f"    os.environ['NKI_SIMULATOR'] = switch\n    assert (nki.jit(kernel)(x) == x).all()\n"
        f"    assert type(nki.jit(kernel)(torch.ones(2, 2))) is torch.Tensor\n"
        f"del os.environ['NKI_SIMULATOR']"),
    "nki.simulate#4": (HOST,
        "import os\n"
        + _KERNEL.format(parameters="x", source="nl.copy(nl.copy(nl.load(x), t), nl.float32)")
          .replace("(x):", "(x, t):")
          .replace("np.ones((2, 2), np.float32)", "np.full((2, 2), 257, np.float32)")
        + "kernel = nki.jit(kernel)\n"
          "for switch, wanted in ((None, 256), ('0', 257), ('1', 256)):\n    if switch:\n"
          "        os.environ['NKI_PRECISE_FP'] = switch\n"
          "    assert (kernel(x, nl.bfloat16) == wanted).all()\ndel os.environ['NKI_PRECISE_FP']"),
    "nki.simulate#5": (HOST,
        "import os\ndel os.environ['NEURON_PLATFORM_TARGET_OVERRIDE']\n"
        "run('assert nisa.get_nc_version() is nisa.nc_version.gen4')"),
}

EXEMPT: dict[str, str] = {
    **{
        f"collectives.{name}_{half}#{n}": "in tests/nki/test_collectives.py, on several ranks"
        for name in ("all_gather_v", "all_to_all_v")
        for half, n in (("prepare", 0), ("prepare", 1), ("trigger", 0))
    },
    "nki.jit#5": "advice to those who write kernels",
    "nki.simulate#0": "says how settled the interface is",
    "nki.simulate#7": "of AWS's simulator; this one has times and capacities",
    "typing.tensor#0": "says since when it is there",
    "typing.tensor#1": "says what the documentation lacks",
}

# A launch of a collective whose sizes are data, on ranks of two cores.
_UNEVEN = """
import os
os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = "{target}"
def kernel(x, sizes):
    out = nl.ndarray(({ranks} * 4,), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out.reshape((1, {ranks} * 4)), x.reshape((1, {ranks} * 4)))
    tile = nl.load(x)
    mine = nl.ndarray(sizes.shape, sizes.dtype, nl.private_hbm)
    nisa.dma_copy(mine, sizes)
    ncc.{call}([{src}], [out], ncc.ReplicaGroup([range({ranks})]), mine, {settings})
    return out
x, sizes = np.ones(({ranks}, 4), np.float32), np.ones(({rows}, {ranks}), np.{dtype})
nkisim.run_ranks(nki.simulate(kernel)[{cores}], [(x, sizes)] * {ranks})
"""
_RANKS = {"rows": 3, "src": "x", "settings": "", "dtype": "uint32", "cores": 2}
_GATHER = {"call": "all_gather_v", "target": "trn2", "ranks": 4} | _RANKS
_TO_ALL = {"call": "all_to_all_v", "target": "trn3", "ranks": 8} | _RANKS
for _key, _base, _broken, _kept, _says in (
    ("all_gather_v#0", _GATHER, {"src": "tile"}, {}, "all tensors are in HBM"),
    ("all_gather_v#1", _GATHER, {"rows": 2}, {}, r"uint32\[3, 4\]"),
    ("all_gather_v#2", _GATHER, {"cores": 1}, {}, "logical core of two"),
    ("all_gather_v#3", _GATHER | {"target": "trn3"}, {"settings": "priority=4"}, {}, "priority"),
    ("all_to_all_v#0", _TO_ALL, {"src": "x, x"}, {}, "destination for each source"),
    ("all_to_all_v#1", _TO_ALL, {"ranks": 4}, {}, "more than one device"),
    (
        "all_to_all_v#3",
        _TO_ALL | {"rows": 4, "settings": "has_rdispls=True"},
        {"target": "trn2"},
        {},
        "NeuronCore-v4",
    ),
    ("all_to_all_v#4", _TO_ALL, {"settings": "priority=4"}, {"settings": "priority=3"}, "priority"),
):
    BROKEN[f"collectives.{_key}"] = (
        HOST,
        _UNEVEN.format(**_base | _broken),
        _UNEVEN.format(**_base | _kept),
        _says,
    )
EXEMPT["collectives.all_to_all_v#2"] = "ranks of the simulator are on no node"


# A call of each collective on one rank: in HBM, with its tensors and its settings.
_CALLS = {
    "all_reduce": "ncc.all_reduce([{src}], [{dst}], G, {op})",
    "all_gather": "ncc.all_gather([{src}], [{dst}], G, {dim})",
    "reduce_scatter": "ncc.reduce_scatter([{src}], [{dst}], G, {dim}, {op})",
    "all_to_all": "ncc.all_to_all([{src}], [{dst}], G, {dim})",
    "collective_permute": "ncc.collective_permute([{src}], [{dst}], [(0, 0)])",
    "collective_permute_implicit":
        "ncc.collective_permute_implicit({srcs}, [[{dst}]], G, {channels})",
    "collective_permute_implicit_reduce":
        "ncc.collective_permute_implicit_reduce({srcs}, [[h(8, 4)]], [[{dst}]], G, {op}, {channels}"
        ")",
}
_SETTINGS = {
    "src": "h(8, 4)",
    "dst": "h(8, 4)",
    "srcs": "[[h(8, 4)]]",
    "op": "nl.add",
    "dim": "0",
    "channels": "[0]",
}
# What breaks a constraint of this text, what its neighbour is, and what the error says.
_BREACHES = {
    "HBM or SBUF, never mixed": ({"dst": "s(8, 4)"}, {}, "all tensors are in HBM, or"),
    "HBM only": ({"src": "s(8, 4)", "dst": "s(8, 4)"}, {}, "all tensors are in HBM"),
    "op add": ({"op": "nl.multiply"}, {"op": "nl.minimum"}, "nl.multiply"),
    "collective_dim 0 (HBM) or 0/1": ({"dim": "1"},
        {"dim": "1", "src": "s(8, 4)", "dst": "s(8, 4)"}, "collective_dim=1"),
    "collective_dim 0": ({"dim": "1"}, {}, "collective_dim=1"),
    "one tensor per channel": ({"srcs": "[[h(8, 4), h(8, 4)]]"}, {}, "one tensor for each channel"),
    "channels 0..n-1": ({"channels": "[1]"}, {}, "channel_ids"),
}

for _key, _text in DOCUMENTED.items():
    _name = _key.removeprefix("collectives.").partition("#")[0]
    if not _key.startswith("collectives.") or _name not in _CALLS:
        continue
    if "priority" in _text:
        _call = _CALLS[_name].format(**_SETTINGS)[:-1]
        BROKEN[_key] = ("trn3", f"{_call}, priority=4)", f"{_call}, priority=3)", "priority 4")
        continue
    _broken, _kept, _says = next(v for k, v in _BREACHES.items() if _text.startswith(k))
    BROKEN[_key] = (
        TRN2,
        _CALLS[_name].format(**_SETTINGS | _broken),
        _CALLS[_name].format(**_SETTINGS | _kept),
        _says,
    )

_RING = "ncc.collective_permute_implicit_current_processing_rank_id({step}, G)"
SHOWN |= {
    "collectives.collective_permute_implicit_current_processing_rank_id#0": (
        TRN2,
        f"assert {_RING.format(step=0)}.number() == 0",
    ),
    "collectives.collective_permute_implicit_current_processing_rank_id#1": (
        TRN2,
        f"row = {_RING.format(step=1)}\n"
        "t = s(1, 4)\n"
        "nisa.dma_copy(t, h(8, 4).ap([[4, 1], [1, 4]], scalar_offset=row, indirect_dim=0))\n"
        "assert (v(t) == 1).all()",
    ),
}
