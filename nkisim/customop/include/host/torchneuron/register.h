// NEURON_LIBRARY: names the operators of a library, on the host.
//
// The shape functions become PyTorch operators of a namespace that is unique to the build
// (NKISIM_SHAPES). Python reads the list of operators and registers the public ones with what
// executes them: loading a library again, or a new version of it, then needs no new process.
#pragma once

#include <torch/library.h>

#include <string>

namespace nkisim {

// "namespace operator kernel-function" in lines.
inline std::string& registered() {
  static std::string lines;
  return lines;
}

class NeuronLibrary {
 public:
  NeuronLibrary(const char* name, torch::Library& shapes) : name_(name), shapes_(shapes) {}

  template <typename Function>
  NeuronLibrary& def(const char* op_name, Function* shape_fcn, const char* kernel_fcn) {
    shapes_.def(op_name, shape_fcn);
    registered() += name_ + " " + op_name + " " + kernel_fcn + "\n";
    return *this;
  }

 private:
  std::string name_;
  torch::Library& shapes_;
};

}  // namespace nkisim

extern "C" __attribute__((visibility("default"), used)) inline const char* nkisim_registered() {
  return nkisim::registered().c_str();
}

#define NEURON_LIBRARY(ns, m) NKISIM_NEURON_LIBRARY(ns, m, NKISIM_SHAPES)
#define NKISIM_NEURON_LIBRARY(ns, m, shapes)                    \
  static void nkisim_define_##ns(nkisim::NeuronLibrary& m);     \
  TORCH_LIBRARY_FRAGMENT(shapes, nkisim_library_##ns) {         \
    nkisim::NeuronLibrary library(#ns, nkisim_library_##ns);    \
    nkisim_define_##ns(library);                                \
  }                                                             \
  static void nkisim_define_##ns(nkisim::NeuronLibrary& m)
