"""Exercises of the page that validates the cost model."""

import itertools

import numpy as np

from nkibook.exercises import exercise


def _latencies(rng, count):
    """Published latencies in µs, and modelled ones that are off by a third or so."""
    published = np.exp(rng.uniform(3, 8, count)).round(1)
    return published, (published * np.exp(rng.normal(0, 0.3, count))).round(1)


@exercise(
    (8,),
    (13,),
    lines=2,
    data=_latencies,
    reveal=False,
    hint="A relative error is modelled / published - 1; take its absolute value, then the median.",
)
def typical_error(published, modelled):
    # The median of the absolute values of the relative errors.
    return np.median(np.abs(modelled / published - 1))


@exercise(
    (8,),
    (13,),
    lines=1,
    data=_latencies,
    reveal=False,
    hint="There are n (n - 1) / 2 pairs; a share is between 0 and 1.",
)
def pairs_in_order(published, modelled):
    # The share of pairs of kernels that the model puts in the published
    # order.
    pairs = list(itertools.combinations(range(len(published)), 2))
    seen = [published[i] < published[j] for i, j in pairs]
    said = [modelled[i] < modelled[j] for i, j in pairs]
    return np.mean(np.equal(seen, said))


@exercise(
    (3 * 2**20, 60.0, 16.0),
    (2**20, 20.0, 16.0),
    lines=1,
    reveal=False,
    unit="GB/s",
    hint="The launch overhead lies before the first instruction and after the last instruction.",
)
def bandwidth(moved, latency_us, launch_us):
    # GB/s between the first instruction and the last.
    return moved / ((latency_us - launch_us) * 1e-6) / 1e9
