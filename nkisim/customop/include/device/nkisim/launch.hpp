// Runs a kernel function on one thread a processor. Included by the generated wrapper only.
#pragma once

#include <cstring>
#include <thread>
#include <vector>

#include "nkisim/processor.hpp"
#include "nkisim/tensor.hpp"

namespace nkisim {

// An argument of an operator. Written by Python: the layout is that of `_Argument` in runtime.py.
struct Argument {
  void* data;
  int64_t sizes[kMaxDims];
  int32_t dim;
  int32_t type;
  double real;
  int64_t integer;
};

using Kernel = Tensor (*)(const std::vector<Tensor>& tensors, const Argument* arguments);

inline std::shared_ptr<Storage> storage_of(const Argument& argument, uint8_t* written) {
  auto storage = std::make_shared<Storage>();
  storage->type = static_cast<ScalarType>(argument.type);
  storage->sizes.assign(argument.sizes, argument.sizes + argument.dim);
  storage->data = static_cast<unsigned char*>(argument.data);
  storage->written = written;
  return storage;
}

// Without get_dst_tensor(), what the kernel returns becomes the output.
inline void copy_result(const Tensor& result, Storage& output) {
  const Storage& from = *result.storage();
  if (from.type != output.type || from.sizes != output.sizes) {
    throw Fault("output", "the kernel function returned a tensor of another shape or dtype than "
                          "the shape function");
  }
  memcpy(output.data, from.data, static_cast<size_t>(from.numel()) * size_of(from.type));
  output.mark(0, static_cast<size_t>(from.numel()));
}

inline void say(Record& record, const char* check, const char* message) {
  strncpy(record.check, check, sizeof(record.check) - 1);
  strncpy(record.message, message, sizeof(record.message) - 1);
}

inline void run_one(Kernel kernel, uint32_t id, uint32_t count, size_t tcm_bytes,
                    const Argument* arguments, int number, const Argument& result,
                    uint8_t* written, Record& record) {
  Processor processor(id, count, tcm_bytes, record);
  try {
    std::vector<Tensor> tensors;
    for (int i = 0; i < number; ++i) tensors.push_back(Tensor(storage_of(arguments[i], nullptr)));
    dst_storage() = storage_of(result, written);
    const Tensor returned = kernel(tensors, arguments);
    if (!record.used_dst && count == 1) copy_result(returned, *dst_storage());
  } catch (const Fault& fault) {
    say(record, fault.check, fault.what());
  } catch (const std::exception& error) {
    say(record, "exception", error.what());
  } catch (...) {
    say(record, "exception", "an exception that is not a std::exception");
  }
  dst_storage().reset();
  processor.finish();
}

inline void run(Kernel kernel, uint32_t count, size_t tcm_bytes, const Argument* arguments,
                int number, const Argument* result, uint8_t* written, Record* records) {
  std::vector<std::thread> threads;
  for (uint32_t id = 0; id < count; ++id) {
    threads.emplace_back(run_one, kernel, id, count, tcm_bytes, arguments, number,
                         std::cref(*result), written, std::ref(records[id]));
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace nkisim
