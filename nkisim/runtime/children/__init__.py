"""The folder that `python -m nkisim` puts on the path of the Python programs that a program starts.

Workers of pytest-xdist and processes that multiprocessing spawns are such programs.
"""
