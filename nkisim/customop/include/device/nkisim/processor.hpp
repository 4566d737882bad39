// One GpSimd processor: its id, its TCM, and what it has done. Each runs in a thread of its own.
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

namespace nkisim {

// What a processor did. Read by Python: the layout is that of `_Record` in runtime.py.
struct Record {
  uint64_t transfers;         // copies between tensors and TCM
  uint64_t bytes_read;        // from tensors
  uint64_t bytes_written;     // to tensors
  uint64_t tcm_peak;          // bytes of TCM in use at most
  uint64_t tcm_left;          // bytes still allocated when the kernel returned
  uint64_t blocks_left;       // in how many blocks
  uint64_t refused;           // bytes of the first tcm_malloc that returned null, or 0
  uint64_t in_use_then;       // bytes in use at that time
  uint64_t used_dst;          // whether get_dst_tensor() was called
  char check[16];             // the check that failed; empty when none did
  char message[512];          // and what it says
};

// A kernel does what the device cannot, or leaves undefined.
class Fault : public std::runtime_error {
 public:
  Fault(const char* check, const std::string& message)
      : std::runtime_error(message), check(check) {}
  const char* check;
};

class Processor {
 public:
  Processor(uint32_t id, uint32_t count, size_t tcm_bytes, Record& record)
      : id(id),
        count(count),
        record(record),
        capacity_(tcm_bytes),
        memory_(new unsigned char[tcm_bytes + kAlignment]) {
    const size_t misaligned = reinterpret_cast<uintptr_t>(memory_.get()) % kAlignment;
    base_ = memory_.get() + (kAlignment - misaligned) % kAlignment;
    slot() = this;
  }

  ~Processor() { slot() = nullptr; }
  Processor(const Processor&) = delete;
  Processor& operator=(const Processor&) = delete;

  // The processor whose thread this is.
  static Processor& current() {
    if (slot() == nullptr) {
      throw Fault("tcm", "called outside of a kernel function, where there is no processor");
    }
    return *slot();
  }

  // First fit, in units of a vector. Null when no gap is large enough, as on the device.
  void* allocate(size_t bytes) {
    const size_t size = std::max<size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
    size_t offset = 0;
    for (const auto& block : blocks_) {
      if (block.first - offset >= size) break;
      offset = block.first + block.second.reserved;
    }
    if (bytes > capacity_ || offset + size > capacity_) {
      if (record.refused == 0) {
        record.refused = bytes;
        record.in_use_then = in_use_;
      }
      return nullptr;
    }
    blocks_[offset] = Block{bytes, size};
    in_use_ += bytes;
    record.tcm_peak = std::max<uint64_t>(record.tcm_peak, in_use_);
    memset(base_ + offset, 0xff, size);  // read before written: NaN, or -1
    return base_ + offset;
  }

  void release(void* pointer) {
    if (pointer == nullptr) return;
    const auto block = blocks_.find(static_cast<unsigned char*>(pointer) - base_);
    if (block == blocks_.end()) {
      throw Fault("tcm",
                  "tcm_free of a pointer that tcm_malloc did not return, or that is free already");
    }
    in_use_ -= block->second.bytes;
    blocks_.erase(block);
  }

  // Throws unless `bytes` from `pointer` on lie inside one allocated block.
  void require(const void* pointer, size_t bytes, const char* what) const {
    const unsigned char* start = static_cast<const unsigned char*>(pointer);
    for (const auto& block : blocks_) {
      const unsigned char* first = base_ + block.first;
      if (start >= first && start < first + std::max<size_t>(1, block.second.bytes)) {
        if (bytes <= static_cast<size_t>(first + block.second.bytes - start)) return;
        throw Fault("tcm", std::string(what) + " of " + std::to_string(bytes) + " bytes at byte " +
                               std::to_string(start - first) + " of a TCM buffer of " +
                               std::to_string(block.second.bytes) + " bytes");
      }
    }
    throw Fault("tcm", std::string(what) + " of " + std::to_string(bytes) + " bytes with " +
                           (pointer == nullptr ? "a null pointer" : "a pointer outside TCM") +
                           " as its TCM buffer");
  }

  void finish() {
    record.tcm_left = in_use_;
    record.blocks_left = blocks_.size();
  }

  const uint32_t id;
  const uint32_t count;
  Record& record;

 private:
  static constexpr size_t kAlignment = 64;  // bytes in a 512-bit vector
  struct Block {
    size_t bytes;     // asked for
    size_t reserved;  // in whole vectors
  };

  static Processor*& slot() {
    static thread_local Processor* processor = nullptr;
    return processor;
  }

  const size_t capacity_;
  std::unique_ptr<unsigned char[]> memory_;
  unsigned char* base_;
  size_t in_use_ = 0;
  std::map<size_t, Block> blocks_;  // by offset
};

namespace neuron {

// `nbytes` of this processor's TCM, or null when there is no such piece left.
inline void* tcm_malloc(size_t nbytes) { return Processor::current().allocate(nbytes); }

// Gives back what tcm_malloc returned. Null is let pass.
inline void tcm_free(void* ptr) { Processor::current().release(ptr); }

}  // namespace neuron
}  // namespace nkisim
