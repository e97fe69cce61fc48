#include "autograd/trace.h"

#include "autograd/ops.h"
#include "autograd/segment.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

std::vector<TracedValue> traced(const std::function<void(Tape& tape)>& run) {
  std::vector<TracedValue> values;
  const TraceHook hook([&](TracedValue value) { values.push_back(std::move(value)); });
  Tape tape;
  run(tape);
  return values;
}

// The operations, without values that came from elsewhere.
std::vector<std::string> operations(const std::vector<TracedValue>& values) {
  std::vector<std::string> names;
  for (const TracedValue& value : values)
    if (value.op) names.emplace_back(value.op);
  return names;
}

const TracedValue& call_of(const std::vector<TracedValue>& values, std::string_view op) {
  return *std::find_if(values.begin(), values.end(),
                       [&](const TracedValue& value) { return value.op && value.op == op; });
}

}  // namespace

TEST_CASE("a trace has the operations in order, with inputs and attributes") {
  CHECK_FALSE(tracing());
  const auto values = traced([](Tape& tape) {
    CHECK(tracing());
    const Var x = tape.input(full({2, 3}, 2));
    sum(leaky_relu(transpose(x, 0, 1), 0.25), {0});
  });
  CHECK_FALSE(tracing());
  CHECK(operations(values) == std::vector<std::string>{"permute", "leaky_relu", "sum"});
  CHECK(values[0].op == nullptr);
  CHECK(values[0].samples == SampleAxis(0));
  const TracedValue& permute = call_of(values, "permute");
  CHECK(permute.inputs.at(0).value().shares_storage(values[0].value));
  CHECK(permute.attributes.at("axes").get<Shape>() == Shape{1, 0});
  const TracedValue& relu = call_of(values, "leaky_relu");
  CHECK(relu.attributes.at("a").get<double>() == 0.25);
  CHECK(relu.samples == SampleAxis(1));
  CHECK(
      throws([&] { relu.attributes.at("a").get<Shape>(); }, "trace: an attribute of another type"));
  CHECK(call_of(values, "sum").attributes.at("keepdim").get<std::int64_t>() == 0);
}

TEST_CASE("operations within a checkpointed segment are traced") {
  const auto values = traced([](Tape& tape) {
    const Var x = tape.input(full({2, 3}, 2), 0, true);
    segment([](const Var& y) { return exp(square(y)); }, x);
  });
  CHECK(operations(values) == std::vector<std::string>{"square", "exp", "segment"});
}

TEST_CASE("values that operations compute outside of the tape are explained") {
  const auto values = traced([](Tape& tape) { argmax(tape.input(full({2, 3}, 2)), 1, true); });
  CHECK(operations(values) == std::vector<std::string>{"argmax"});
  CHECK(values.back().explained);
  CHECK(values.back().attributes.at("axis").get<std::int64_t>() == 1);
  CHECK(values.back().value.shares_storage(values[1].value));
}

TEST_CASE("a thread has one trace at a time") {
  const TraceHook hook([](const TracedValue&) {});
  CHECK(throws([] { const TraceHook second([](const TracedValue&) {}); },
               "trace: another trace is running on this thread"));
  CHECK(tracing());
}
