"""Installs the simulator in a Python program that a program under `python -m nkisim` started.

Python imports a module of this name at every start. Another one that this one hides is imported
afterwards, as if this one were not there.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _here]
try:
    from nkisim import install
except ImportError:
    pass  # another Python, with packages of its own
else:
    install()

_this = sys.modules.pop(__name__)
try:
    import sitecustomize  # noqa: F401
except ImportError:
    sys.modules[__name__] = _this
