"""The folder that `python -m nkisim` puts on the path of the Python programs that a program starts.

Workers of pytest-xdist and processes that multiprocessing spawns are such programs.
"""

import os


def reach() -> None:
    """Have the Python programs that this process starts install the simulator as well."""
    before = os.environ.get("PYTHONPATH")
    folders = [os.path.dirname(__file__), *([before] if before else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(folders)
