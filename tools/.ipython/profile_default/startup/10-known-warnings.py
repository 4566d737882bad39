# Known warnings of the simulator about the kernels of this book, to be mended there: what a page
# writes to standard error fails the build. Any other warning still does.
import warnings

for known in (
    # GIOU on NeuronCore-v2 adds a tile as the bias of a copy.
    r"nisa\.activation: copy with a bias tile",
    # Pooling in `import nki` plans with a dataclass; the gradient of attention shares a PSUM bank.
    r".* which kernel nki_avg_pool2d\w* calls, has an? '\w+' statement",
    r"nc_matmul starts an accumulation group",
):
    warnings.filterwarnings("ignore", message=known)
del known, warnings
