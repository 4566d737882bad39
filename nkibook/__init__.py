"""What the notebooks share: HLO views, plots, measurements, exercises, and the doctor.

Importing it in a notebook makes cells that begin with ``# simulator only`` known: `nkibook.cells`.
"""

from nkibook import cells

cells.register()
