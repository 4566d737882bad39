"""`neuronxcc.starfish.support.dtype`: the compiler's own names of types.

They are not documented, but public kernels import them, as nki-samples' pipelined_attention does.
"""

from nkisim.frontends.neuronxcc.lowering.types import static_cast
from nkisim.ir.dtypes import bfloat16, float8_e4m3, float8_e5m2

__all__ = ["bfloat16", "float8_e4m3", "float8_e5m2", "static_cast"]
