"""`nki.collectives`: data among the ranks of a job, which `nkisim.run_ranks` runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.frontends.nki import releases
from nkisim.frontends.nki.arguments import checked_settings
from nkisim.frontends.nki.surface.collectives.even import (
    all_gather,
    all_reduce,
    all_to_all,
    reduce_scatter,
)
from nkisim.frontends.nki.surface.collectives.exchange import ReplicaGroup, rg_partition_op
from nkisim.frontends.nki.surface.collectives.permutes import (
    collective_permute,
    collective_permute_implicit,
    collective_permute_implicit_current_processing_rank_id,
    collective_permute_implicit_reduce,
    rank_id,
)
from nkisim.frontends.nki.surface.collectives.uneven import (
    all_gather_v,
    all_gather_v_prepare,
    all_gather_v_trigger,
    all_to_all_v,
    all_to_all_v_prepare,
    all_to_all_v_trigger,
)
from nkisim.frontends.nki.surface.names import missing

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_gather_v_prepare",
    "all_gather_v_trigger",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "all_to_all_v_prepare",
    "all_to_all_v_trigger",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
    "rg_partition_op",
]

globals().update(checked_settings(globals(), __all__, "ncc"))

__getattr__: Callable[[str], Any] = missing("nki.collectives", releases.later(globals(), "ncc"))
