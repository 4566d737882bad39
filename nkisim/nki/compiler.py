"""`neuronxcc.nki.compiler`: names for on-chip buffers. Direct allocation is not simulated yet."""

from __future__ import annotations

from nkisim.memory import Space

sbuf = Space.SBUF
psum = Space.PSUM
