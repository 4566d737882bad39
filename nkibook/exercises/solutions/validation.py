"""Answers to the exercises on the validation of the cost model."""

import itertools

import numpy as np


def typical_error(published, modelled):
    errors = np.abs(modelled / published - 1)
    return np.median(errors)


def pairs_in_order(published, modelled):
    kept = []
    for i, j in itertools.combinations(range(len(published)), 2):
        first = published[i] < published[j]
        kept.append(first == (modelled[i] < modelled[j]))
    return np.mean(kept)


def bandwidth(moved, latency_us, launch_us):
    return moved / ((latency_us - launch_us) * 1e-6) / 1e9
