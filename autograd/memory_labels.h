// Memory labels of the tape's values: the operation, module and phase that own each allocation
// (core/allocator/memory_label.h).
#pragma once

#include <functional>

#include "autograd/parameter.h"

namespace sotto {

// What comes from outside is data, and what was allocated before it no operation's.
void label_input(const Tensor& value);

// A parameter belongs to the module that uses it first.
void label_parameter(const Tensor& value);

// Told of every parameter that a tape uses, for as long as it lives and on its thread; a later one
// is told instead of an earlier.
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

// A parameter's gradient or state belongs to the module that the parameter belongs to.
void label_for(const Parameter& parameter, MemoryKind kind, const Tensor& value);

// What this thread allocated since the last op, or input, is the op's.
void label_result(const Tensor& value, const char* op);

// While an op's backward runs: temporaries of the op and of the module that recorded it.
LabelScope backward_scope(const char* op, const char* module);

}  // namespace sotto
