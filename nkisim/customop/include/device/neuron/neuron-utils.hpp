// What a kernel function asks about the processor it runs on, as documented for the device.
#pragma once

#include <stdint.h>

#include "nkisim/processor.hpp"
#include "nkisim/tensor.hpp"

// The id of this processor, from 0 to get_cpu_count() - 1.
inline uint32_t get_cpu_id() { return nkisim::Processor::current().id; }

// How many processors run the kernel: 8 with multicore=True, else 1.
inline uint32_t get_cpu_count() { return nkisim::Processor::current().count; }

// The operator's output. Once asked for, what the kernel returns is ignored.
inline nkisim::Tensor get_dst_tensor() { return nkisim::dst_tensor(); }
