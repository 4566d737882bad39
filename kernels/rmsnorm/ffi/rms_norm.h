// What the handlers of RMSNorm share: their bindings, the checks of shapes and dtypes, and the choice
// of a template by dtype. XLA calls a handler with whatever a program has, so a handler that
// trusts its buffers reads past their end.
#ifndef RMS_NORM_H_
#define RMS_NORM_H_

#include <cstdint>
#include <sstream>
#include <string>
#include <type_traits>

#include "narrow.h"
#include "xla/ffi/api/ffi.h"

namespace rms_norm {

namespace ffi = xla::ffi;

// A row is all of the axes that the weight has: x is (rows..., cols...), weight (cols...).
struct Sizes {
  int64_t rows;
  int64_t cols;
};

inline std::string Text(ffi::AnyBuffer::Dimensions dims) {
  std::ostringstream out;
  out << "(";
  for (size_t i = 0; i < dims.size(); ++i) out << (i ? ", " : "") << dims[i];
  out << ")";
  return out.str();
}

// Whether `dims` is the part of `whole` from `first` on, `size` dimensions long.
inline bool IsPart(ffi::AnyBuffer::Dimensions dims, ffi::AnyBuffer::Dimensions whole, size_t first,
                   size_t size) {
  if (dims.size() != size || first + size > whole.size()) return false;
  for (size_t i = 0; i < size; ++i) {
    if (dims[i] != whole[first + i]) return false;
  }
  return true;
}

inline ffi::Error Refused(const std::string& what) {
  return ffi::Error::InvalidArgument("rms_norm: " + what);
}

// An array of x's dtype and dimensions, as y and the gradients of both are.
inline ffi::Error CheckLike(const char* name, ffi::AnyBuffer array, ffi::AnyBuffer x) {
  const auto dims = array.dimensions(), expected = x.dimensions();
  if (array.element_type() == x.element_type() && IsPart(dims, expected, 0, expected.size())) {
    return ffi::Error::Success();
  }
  std::ostringstream what;
  what << name << " is " << array.element_type() << " " << Text(dims) << " and x is "
       << x.element_type() << " " << Text(expected) << "; they must be alike";
  return Refused(what.str());
}

// Sizes of x and weight, and whether invvar, (rows...), fits them.
inline ffi::ErrorOr<Sizes> CheckSizes(ffi::AnyBuffer x, ffi::AnyBuffer weight,
                                      ffi::AnyBuffer::Dimensions invvar) {
  const auto dims = x.dimensions(), row = weight.dimensions();
  if (row.size() == 0 || row.size() > dims.size() ||
      !IsPart(row, dims, dims.size() - row.size(), row.size())) {
    return ffi::Unexpected(Refused("weight has the dimensions " + Text(row) + " and x " +
                                   Text(dims) + "; those of weight must be the last of x's"));
  }
  const size_t lead = dims.size() - row.size();
  if (!IsPart(invvar, dims, 0, lead)) {
    return ffi::Unexpected(Refused("invvar has the dimensions " + Text(invvar) +
                                   "; it holds one number for each row of x, which is " +
                                   Text(dims) + " with rows of " + Text(row)));
  }
  const int64_t cols = weight.element_count();
  if (cols == 0) {
    return ffi::Unexpected(Refused("a row of x has no elements, and so no mean: weight is " +
                                   Text(row)));
  }
  return Sizes{static_cast<int64_t>(x.element_count()) / cols, cols};
}

// grad_weight (cols...) float32, and partial sums (parts, cols...) of it.
inline ffi::Error CheckSums(ffi::AnyBuffer::Dimensions grad_weight,
                            ffi::AnyBuffer::Dimensions parts, ffi::AnyBuffer weight,
                            int64_t rows) {
  const auto row = weight.dimensions();
  if (!IsPart(grad_weight, row, 0, row.size()) || parts.size() != row.size() + 1 ||
      !IsPart(row, parts, 1, row.size())) {
    return Refused("grad_weight has the dimensions " + Text(grad_weight) +
                   " and its partial sums " + Text(parts) + "; with a weight of " + Text(row) +
                   " they must be those, and those with one axis before them");
  }
  if (parts[0] == 0 && rows > 0) return Refused("there are rows, and no partial sum for them");
  return ffi::Error::Success();
}

// A dtype as an argument of a function: a generic lambda reads `typename decltype(tag)::type`.
template <typename T>
struct Tag {
  using type = T;
};

// Call `f(Tag<X>, Tag<W>)` with the C++ types of both arrays' dtypes.
template <typename F>
ffi::Error ForDtypes(ffi::AnyBuffer x, ffi::AnyBuffer weight, F f) {
  const auto pick = [](const char* name, ffi::DataType dtype, auto g) {
    switch (dtype) {
      case ffi::F32:
        return g(Tag<float>{});
      case ffi::BF16:
        return g(Tag<BFloat16>{});
      case ffi::F16:
        return g(Tag<Float16>{});
      default:
        std::ostringstream what;
        what << name << " is " << dtype << "; it must be F32, BF16 or F16";
        return Refused(what.str());
    }
  };
  return pick("x", x.element_type(), [&](auto tx) {
    return pick("weight", weight.element_type(), [&](auto tw) { return f(tx, tw); });
  });
}

template <typename T>
T* Data(ffi::AnyBuffer buffer) {
  return static_cast<T*>(buffer.untyped_data());
}

// What XLA hands to a handler. The FFI decodes it, and refuses a call that has anything else. The
// context is what the work runs on: the threads that XLA itself computes with.
inline auto BindForward() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::AnyBuffer>()          // x (rows..., cols...)
      .Arg<ffi::AnyBuffer>()          // weight (cols...)
      .Ret<ffi::AnyBuffer>()          // y, like x
      .Ret<ffi::Buffer<ffi::F32>>()   // invvar (rows...)
      .Attr<float>("eps");
}

// The last result is memory for the handler to work in, which XLA plans as it does any other array.
inline auto BindBackward() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Arg<ffi::AnyBuffer>()          // grad_y, like x
      .Arg<ffi::AnyBuffer>()          // x (rows..., cols...)
      .Arg<ffi::AnyBuffer>()          // weight (cols...)
      .Arg<ffi::Buffer<ffi::F32>>()   // invvar (rows...)
      .Ret<ffi::AnyBuffer>()          // grad_x, like x
      .Ret<ffi::Buffer<ffi::F32>>()   // grad_weight (cols...)
      .Ret<ffi::Buffer<ffi::F32>>();  // partial sums (parts, cols...) of grad_weight
}

}  // namespace rms_norm

#endif  // RMS_NORM_H_
