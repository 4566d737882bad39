"""The dialect of neuronxcc.nki: index expressions, masks, operators on tiles, scope rules."""
