"""The book's answers to its exercises, under the names of the specifications, for pages to show.

A module a page: here the answers that both dialects share, in `neuronxcc` and `nki` those of each.
"""
