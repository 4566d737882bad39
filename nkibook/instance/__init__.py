"""What a Neuron instance is asked: are the book's kernels right there, and is what it assumes so?

``python -m nkibook.instance -o report.zip`` asks all of it and packs the answers; with ``--compare
report.zip``, on any machine, it says where they differ from what the book assumes.
"""
