"""The book's answers to its exercises, one module a page, under the names of the specifications.

The pages show them folded away, from these files.
"""
