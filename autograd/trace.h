// Traces: the operations of a computation, in order, with the constants that the tape does not
// keep. Exporters read them. Nothing is traced, and nothing costs time, unless a TraceHook lives.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "autograd/var.h"

namespace sotto {

struct Window;

// A constant of an operation's call: a number, a list, a tensor, or values that the operation reads
// besides its inputs.
class Attribute {
 public:
  Attribute(std::integral auto x) : value_(static_cast<std::int64_t>(x)) {}
  Attribute(std::floating_point auto x) : value_(static_cast<double>(x)) {}
  Attribute(Shape x) : value_(std::move(x)) {}
  Attribute(Tensor x) : value_(std::move(x)) {}
  Attribute(std::vector<Var> x) : value_(std::move(x)) {}
  // nullptr for another type.
  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&value_);
  }
  // Throws std::invalid_argument for another type.
  template <class T>
  const T& get() const {
    const T* x = get_if<T>();
    check(x != nullptr, "trace: an attribute of another type");
    return *x;
  }

 private:
  std::variant<std::int64_t, double, Shape, Tensor, std::vector<Var>> value_;
};
using Attributes = std::map<std::string, Attribute>;
// Those of a convolution or pooling: lists of three spatial axes, as in Window.
Attributes window_attributes(const Window& window, bool count_padding = true);

// A value with the call that computed it. Without an `op` it came from elsewhere: an input, a
// constant or a parameter.
struct TracedValue {
  const char* op = nullptr;
  std::vector<Var> inputs = {};
  Attributes attributes = {};
  Tensor value = {};
  SampleAxis samples = SampleAxis::shared();
  const char* module = "";  // the path of the module that computed it
  // The tape recorded the value before, without its operation.
  bool explained = false;
};

// Observes tapes: while it lives, on_value is called for every value that this thread's tapes
// record. Values are not changed afterwards as long as on_value keeps a copy of each: operations
// write over tensors only that nobody else holds. One hook lives on a thread at a time.
class TraceHook {
 public:
  using OnValue = std::function<void(TracedValue)>;
  // Throws std::invalid_argument if a hook lives on this thread.
  explicit TraceHook(OnValue on_value);
  TraceHook(const TraceHook&) = delete;
  TraceHook& operator=(const TraceHook&) = delete;
  ~TraceHook();

 private:
  friend void trace_attributes(Attributes attributes);
  friend void trace_value(TracedValue value);
  OnValue on_value_;
  Attributes next_;  // of the operation that is recorded next
};

// True while a TraceHook lives on this thread.
bool tracing();
// Gives the attributes of the operation that the tape records next. Call it only while tracing().
void trace_attributes(Attributes attributes);
// Reports a value that the tape records. Call it only while tracing().
void trace_value(TracedValue value);
// Reports the call that computed a value outside of the tape, such as ids, which entered the tape
// since as an input or constant. Call it only while tracing().
void explain_value(const char* op, std::vector<Var> inputs, Attributes attributes, const Var& y);

}  // namespace sotto
