"""`neuronxcc.starfish.support.dtype`: the compiler's own names of types.

They are not documented, but public kernels import them, as nki-samples' pipelined_attention does.
"""

from nkisim.dtypes import bfloat16, float8_e4m3, float8_e5m2
from nkisim.lowering.types import static_cast

__all__ = ["bfloat16", "float8_e4m3", "float8_e5m2", "static_cast"]
