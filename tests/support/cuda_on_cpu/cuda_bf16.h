// Stands in for CUDA's header of this name: see cuda_runtime.h.
#pragma once
#include "narrow.h"
using __nv_bfloat16 = rms_norm::BFloat16;
