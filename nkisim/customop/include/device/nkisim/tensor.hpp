// Tensors as a kernel function sees them: shape, dtype, and accessors. Data lies in row-major order.
#pragma once

#include <stdint.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "nkisim/processor.hpp"

namespace nkisim {

constexpr int kMaxDims = 8;

// The numbers are PyTorch's, so that they need no translation on the way in.
enum class ScalarType : int32_t {
  Byte = 0, Char = 1, Short = 2, Int = 3, Long = 4, Half = 5, Float = 6, BFloat16 = 15
};

constexpr ScalarType kByte = ScalarType::Byte, kChar = ScalarType::Char,
                     kShort = ScalarType::Short, kInt = ScalarType::Int, kLong = ScalarType::Long,
                     kHalf = ScalarType::Half, kFloat = ScalarType::Float,
                     kBFloat16 = ScalarType::BFloat16;

inline size_t size_of(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: case ScalarType::Char: return 1;
    case ScalarType::Short: case ScalarType::Half: case ScalarType::BFloat16: return 2;
    case ScalarType::Int: case ScalarType::Float: return 4;
    case ScalarType::Long: return 8;
  }
  return 0;
}

// 16-bit floats as raw bits; a C++ type of their own is the device library's.
template <typename T> struct Matches { static bool type(ScalarType) { return false; } };
template <> struct Matches<float> { static bool type(ScalarType t) { return t == kFloat; } };
template <> struct Matches<int32_t> { static bool type(ScalarType t) { return t == kInt; } };
template <> struct Matches<int64_t> { static bool type(ScalarType t) { return t == kLong; } };
template <> struct Matches<int8_t> { static bool type(ScalarType t) { return t == kChar; } };
template <> struct Matches<uint8_t> { static bool type(ScalarType t) { return t == kByte; } };
template <> struct Matches<int16_t> { static bool type(ScalarType t) { return t == kShort; } };
template <> struct Matches<uint16_t> {
  static bool type(ScalarType t) { return t == kHalf || t == kBFloat16; }
};

// A tensor in the memory of the NeuronCore. `written` holds a bit a processor for each element.
struct Storage {
  ScalarType type;
  std::vector<int64_t> sizes;
  unsigned char* data;
  uint8_t* written;
  std::vector<unsigned char> own;  // behind `data`, for tensors that the kernel makes

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t size : sizes) n *= size;
    return n;
  }

  void mark(size_t first, size_t count) {
    if (written == nullptr) return;
    const uint8_t bit = static_cast<uint8_t>(1u << Processor::current().id);
    for (size_t i = first; i < first + count; ++i) __atomic_fetch_or(written + i, bit, __ATOMIC_RELAXED);
  }
};

// Sizes, usable as c10::IntArrayRef is in kernels.
class IntArrayRef {
 public:
  IntArrayRef(const std::vector<int64_t>& sizes) : sizes_(sizes) {}
  template <typename T> IntArrayRef(std::initializer_list<T> sizes) : sizes_(sizes.begin(), sizes.end()) {}
  int64_t operator[](size_t i) const { return sizes_.at(i); }
  size_t size() const { return sizes_.size(); }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + sizes_.size(); }
  const std::vector<int64_t>& vec() const { return sizes_; }
  friend bool operator==(const IntArrayRef& a, const IntArrayRef& b) { return a.sizes_ == b.sizes_; }
  friend bool operator!=(const IntArrayRef& a, const IntArrayRef& b) { return !(a == b); }

 private:
  std::vector<int64_t> sizes_;
};

inline void require_type(bool matches, const char* what) {
  if (!matches) throw Fault("dtype", std::string(what) + ": T is not the tensor's dtype");
}

inline void require_single_core(const char* what) {
  if (Processor::current().count > 1) {
    throw Fault("race", std::string(what) +
                            " was used by several processors; with multicore=True tensors are "
                            "accessed through tcm_accessor() only");
  }
}

// Copies between a tensor, indexed as if it were flat, and a buffer in TCM.
template <bool read_only> class TensorTcmAccessor {
 public:
  explicit TensorTcmAccessor(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {}

  template <typename T> void tensor_to_tcm(T* tcm_ptr, size_t tensor_offset, size_t num_elem) {
    const size_t bytes = check(tcm_ptr, tensor_offset, num_elem, "tensor_to_tcm");
    memcpy(tcm_ptr, storage_->data + tensor_offset * sizeof(T), bytes);
    Processor::current().record.bytes_read += bytes;
  }

  template <typename T> void tcm_to_tensor(T* tcm_ptr, size_t tensor_offset, size_t num_elem) {
    static_assert(!read_only, "tcm_to_tensor: the tensor is const, so its accessor is read-only");
    const size_t bytes = check(tcm_ptr, tensor_offset, num_elem, "tcm_to_tensor");
    memcpy(storage_->data + tensor_offset * sizeof(T), tcm_ptr, bytes);
    storage_->mark(tensor_offset, num_elem);
    Processor::current().record.bytes_written += bytes;
  }

 private:
  template <typename T> size_t check(const T* tcm_ptr, size_t offset, size_t count, const char* what) {
    require_type(Matches<T>::type(storage_->type), what);
    const size_t numel = static_cast<size_t>(storage_->numel());
    if (offset > numel || count > numel - offset) {
      throw Fault("bounds", std::string(what) + " of elements " + std::to_string(offset) + " to " +
                                std::to_string(offset + count - 1) + " of a tensor of " +
                                std::to_string(numel) + " elements");
    }
    Processor& processor = Processor::current();
    processor.require(tcm_ptr, count * sizeof(T), what);
    ++processor.record.transfers;
    return count * sizeof(T);
  }

  std::shared_ptr<Storage> storage_;
};

// Elements one by one, from the first on.
template <typename T> class TensorReadStreamAccessor {
 public:
  explicit TensorReadStreamAccessor(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {}
  T read() {
    if (storage_ == nullptr || next_ >= storage_->numel()) {
      throw Fault("bounds", "read() on a stream that is closed or at its end");
    }
    return reinterpret_cast<const T*>(storage_->data)[next_++];
  }
  int close() { storage_.reset(); return 0; }

 private:
  std::shared_ptr<Storage> storage_;
  int64_t next_ = 0;
};

template <typename T> class TensorWriteStreamAccessor {
 public:
  explicit TensorWriteStreamAccessor(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {}
  void write(T value) {
    if (storage_ == nullptr || next_ >= storage_->numel()) {
      throw Fault("bounds", "write() on a stream that is closed or at its end");
    }
    reinterpret_cast<T*>(storage_->data)[next_] = value;
    storage_->mark(static_cast<size_t>(next_++), 1);
  }
  int close() { storage_.reset(); return 0; }

 private:
  std::shared_ptr<Storage> storage_;
  int64_t next_ = 0;
};

// Elements by index: accessor[i][j] for a tensor of two dimensions.
template <typename T, size_t N, bool read_only> class TensorAccessor {
 public:
  using Element = typename std::conditional<read_only, const T, T>::type;
  using Next = typename std::conditional<N == 1, Element&, TensorAccessor<T, N - 1, read_only>>::type;

  TensorAccessor(Element* data, const int64_t* sizes) : data_(data), sizes_(sizes) {}
  Next operator[](int64_t i) const {
    if (i < 0 || i >= sizes_[0]) {
      throw Fault("bounds", "index " + std::to_string(i) + " of an accessor whose dimension has " +
                                std::to_string(sizes_[0]) + " elements");
    }
    return at(i, std::integral_constant<bool, N == 1>());
  }
  int64_t size(int64_t dim) const { return sizes_[dim]; }

 private:
  Element& at(int64_t i, std::true_type) const { return data_[i]; }
  TensorAccessor<T, N - 1, read_only> at(int64_t i, std::false_type) const {
    int64_t stride = 1;
    for (size_t d = 1; d < N; ++d) stride *= sizes_[d];
    return TensorAccessor<T, N - 1, read_only>(data_ + i * stride, sizes_ + 1);
  }
  Element* data_;
  const int64_t* sizes_;
};

template <typename T, bool read_only> class TensorAccessor<T, 0, read_only> {};

class Tensor {
 public:
  explicit Tensor(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {}

  IntArrayRef sizes() const { return IntArrayRef(storage_->sizes); }
  int64_t size(int64_t dim) const { return storage_->sizes.at(dim < 0 ? dim + this->dim() : dim); }
  int64_t dim() const { return static_cast<int64_t>(storage_->sizes.size()); }
  int64_t numel() const { return storage_->numel(); }
  ScalarType scalar_type() const { return storage_->type; }

  TensorTcmAccessor<true> tcm_accessor() const& { return TensorTcmAccessor<true>(storage_); }
  TensorTcmAccessor<false> tcm_accessor() & { return TensorTcmAccessor<false>(storage_); }

  template <typename T> TensorReadStreamAccessor<T> read_stream_accessor() const {
    require_single_core("read_stream_accessor()");
    require_type(Matches<T>::type(storage_->type), "read_stream_accessor<T>()");
    return TensorReadStreamAccessor<T>(storage_);
  }
  template <typename T> TensorWriteStreamAccessor<T> write_stream_accessor() & {
    require_single_core("write_stream_accessor()");
    require_type(Matches<T>::type(storage_->type), "write_stream_accessor<T>()");
    return TensorWriteStreamAccessor<T>(storage_);
  }

  template <typename T, size_t N> TensorAccessor<T, N, true> accessor() const& {
    check_accessor<T, N>();
    return TensorAccessor<T, N, true>(reinterpret_cast<const T*>(storage_->data), storage_->sizes.data());
  }
  // Which elements are written through it is not recorded: all count as written.
  template <typename T, size_t N> TensorAccessor<T, N, false> accessor() & {
    check_accessor<T, N>();
    storage_->mark(0, static_cast<size_t>(numel()));
    return TensorAccessor<T, N, false>(reinterpret_cast<T*>(storage_->data), storage_->sizes.data());
  }

  const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  template <typename T, size_t N> void check_accessor() const {
    require_single_core("accessor()");
    require_type(Matches<T>::type(storage_->type), "accessor<T, N>()");
    if (dim() != static_cast<int64_t>(N)) {
      throw Fault("bounds", "accessor<T, " + std::to_string(N) + ">() of a tensor of " +
                                std::to_string(dim()) + " dimensions");
    }
  }
  std::shared_ptr<Storage> storage_;
};

inline Tensor empty(const IntArrayRef& sizes, ScalarType type) {
  auto storage = std::make_shared<Storage>();
  storage->type = type;
  storage->sizes = sizes.vec();
  storage->written = nullptr;
  storage->own.assign(static_cast<size_t>(storage->numel()) * size_of(type), 0xff);
  storage->data = storage->own.data();
  return Tensor(storage);
}

inline Tensor zeros(const IntArrayRef& sizes, ScalarType type) {
  Tensor tensor = empty(sizes, type);
  std::fill(tensor.storage()->own.begin(), tensor.storage()->own.end(), 0);
  return tensor;
}

// The output of the operator that runs in this thread. Set by the launch.
inline std::shared_ptr<Storage>& dst_storage() {
  static thread_local std::shared_ptr<Storage> storage;
  return storage;
}

inline Tensor dst_tensor() {
  Processor::current().record.used_dst = 1;
  return Tensor(dst_storage());
}

}  // namespace nkisim
