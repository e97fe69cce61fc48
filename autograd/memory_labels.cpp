#include "autograd/memory_labels.h"

#include "core/allocator/allocator.h"

namespace sotto {

namespace {

thread_local const UseWatch* watch = nullptr;

}  // namespace

UseWatch::UseWatch(OnUse on_use) : on_use_(std::move(on_use)), before_(watch) { watch = this; }

UseWatch::~UseWatch() { watch = before_; }

void note_use(const Parameter& parameter) {
  if (watch) watch->on_use_(parameter);
}

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
