#include "sotto/autograd/ownership.h"

#include "sotto/core/allocator.h"

namespace sotto {

void label_input(const Tensor& value) {
  if (!value.defined()) return;
  allocator(value.device()).forget_waiting();
  if (value.memory_label().kind == MemoryKind::other) value.relabel(MemoryKind::data);
}

void label_parameter(const Tensor& value) {
  if (*value.memory_label().module == '\0')
    value.relabel({.kind = MemoryKind::parameter, .module = memory_label().module});
}

void label_for(const Parameter& parameter, MemoryKind kind, const Tensor& value) {
  value.relabel({.kind = kind,
                 .module = parameter.value.memory_label().module,
                 .phase = memory_label().phase});
}

void label_result(const Tensor& value, const char* op) {
  if (value.defined()) allocator(value.device()).name_waiting(op, "forward");
}

LabelScope backward_scope(const char* op, const char* module) {
  return LabelScope({.kind = MemoryKind::workspace,
                     .backward = true,
                     .op = op,
                     .module = module,
                     .phase = "backward"});
}

}  // namespace sotto
