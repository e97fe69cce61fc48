// Modules whose values are read from a file: made without drawing initial ones.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor.h"

namespace sotto::nn {

// While one lives on the thread, the functions of init.h draw nothing and give tensors of one
// element, repeated to the shape: modules take neither time nor memory until values replace them.
class WithoutInit {
 public:
  // `max_elements`: that all tensors may have together; beyond it std::invalid_argument is thrown,
  // which begins with `source`.
  WithoutInit(std::int64_t max_elements, std::string source);
  ~WithoutInit();
  WithoutInit(const WithoutInit&) = delete;
  WithoutInit& operator=(const WithoutInit&) = delete;

  static bool lives();  // one, on this thread
  // A tensor of this shape while one lives on the thread, else an undefined one.
  static Tensor of(const Shape& shape);

 private:
  std::int64_t left_;
  std::string source_;
  WithoutInit* before_;
};

}  // namespace sotto::nn
