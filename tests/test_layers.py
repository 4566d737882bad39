"""No circle of files: imports in functions and for type checkers count. The order of packages is
import-linter's, in `make lint`."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp
import pytest


@pytest.mark.parametrize("package", ["kernels", "nkibook", "nkisim"])
def test_no_circle_of_files(package):
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
