#include "autograd/trace.h"

#include "core/allocator/memory_label.h"
#include "kernels/host_device/geometry.h"

namespace sotto {

namespace {

thread_local TraceHook* hook = nullptr;

}  // namespace

Attributes window_attributes(const Window& window, bool count_padding) {
  const auto list = [](const std::int64_t(&x)[3]) { return Shape{x[0], x[1], x[2]}; };
  return {{"kernel", list(window.kernel)},     {"stride", list(window.stride)},
          {"before", list(window.before)},     {"after", list(window.after)},
          {"dilation", list(window.dilation)}, {"groups", window.groups},
          {"count_padding", count_padding}};
}

TraceHook::TraceHook(OnValue on_value) : on_value_(std::move(on_value)) {
  check(hook == nullptr, "trace: another trace is running on this thread");
  hook = this;
}

TraceHook::~TraceHook() { hook = nullptr; }

bool tracing() { return hook != nullptr; }

void trace_attributes(Attributes attributes) { hook->next_ = std::move(attributes); }

void trace_value(TracedValue value) {
  Attributes told = std::exchange(hook->next_, {});
  if (value.op && !value.explained) value.attributes = std::move(told);
  value.module = memory_label().module;
  hook->on_value_(std::move(value));
}

void explain_value(const char* op, std::vector<Var> inputs, Attributes attributes, const Var& y) {
  trace_value({.op = op,
               .inputs = std::move(inputs),
               .attributes = std::move(attributes),
               .value = y.value(),
               .samples = y.samples(),
               .explained = true});
}

}  // namespace sotto
