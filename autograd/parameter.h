// A trainable tensor. Its address identifies it for tapes, sinks and optimizers, so it cannot be
// moved.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace sotto {

// A tensor that training changes. Tape::use() puts it on a tape, and a GradSink receives its
// gradient; `trainable` = false freezes it.
//   Parameter w(zeros({10, 784}));
struct Parameter {
  explicit Parameter(Tensor initial) : value(std::move(initial)) {
    value.relabel({.kind = MemoryKind::parameter});
  }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  Tensor value;           // the present values
  bool trainable = true;  // false: frozen
};

// Gradients of parameters, in a fixed order.
using Gradients = std::vector<std::pair<Parameter*, Tensor>>;

}  // namespace sotto
