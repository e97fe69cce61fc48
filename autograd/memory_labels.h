// Memory labels for tensors on the tape: the op, module and phase that own each allocation
// (core/allocator/memory_label.h).
#pragma once

#include <functional>

#include "autograd/parameter.h"

namespace sotto {

// Labels a tape input as MemoryKind::data. Allocations made before it are not charged to any op.
void label_input(const Tensor& value);

// Labels a parameter with the module that uses it first.
void label_parameter(const Tensor& value);

// Calls `on_use` for every parameter that a tape on this thread uses, while it lives. Only the
// innermost watch is called.
class UseWatch {
 public:
  using OnUse = std::function<void(const Parameter& parameter)>;
  explicit UseWatch(OnUse on_use);
  UseWatch(const UseWatch&) = delete;
  UseWatch& operator=(const UseWatch&) = delete;
  ~UseWatch();

 private:
  friend void note_use(const Parameter& parameter);
  OnUse on_use_;
  const UseWatch* before_;
};
void note_use(const Parameter& parameter);

// Labels a parameter's gradient or optimizer state with the module that owns the parameter.
void label_for(const Parameter& parameter, MemoryKind kind, const Tensor& value);

// Labels this thread's allocations since the last op or input as owned by `op`.
void label_result(const Tensor& value, const char* op);

// Labels allocations during an op's backward with the op and the module that recorded it.
LabelScope backward_scope(const char* op, const char* module);

}  // namespace sotto
