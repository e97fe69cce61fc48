#include "nn/layers/recurrent_layers.h"

#include <cmath>

#include "autograd/ops.h"
#include "nn/init.h"

namespace sotto::nn {

namespace {

std::unique_ptr<Parameter> random_weight(const Shape& shape, std::int64_t hidden) {
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  return std::make_unique<Parameter>(random_uniform(shape, -bound, bound));
}

std::optional<Var> used(Tape& tape, const std::unique_ptr<Parameter>& parameter) {
  return parameter ? std::optional(tape.use(*parameter)) : std::nullopt;
}

// The initial state number `which` of [layers * directions, n, width].
std::optional<Var> state_at(const std::optional<Var>& states, std::size_t which,
                            std::size_t count) {
  if (!states) return std::nullopt;
  check(states->rank() == 3 && states->shape()[0] == static_cast<std::int64_t>(count),
        "recurrent layers: states {} for {} layers and directions", states->shape(), count);
  return select(*states, 0, static_cast<std::int64_t>(which));
}

}  // namespace

RecurrentOutputs run_layers(Cell cell, const Var& x, const std::vector<RecurrentWeights>& weights,
                            const RecurrentInputs& inputs, const LayeredOptions& options) {
  const std::size_t directions = options.bidirectional ? 2 : 1;
  check(!weights.empty() && weights.size() % directions == 0,
        "recurrent layers: {} sets of weights", weights.size());
  Var y = x;
  std::vector<Var> h, c;
  for (std::size_t which = 0; which < weights.size(); which += directions) {
    if (which > 0) y = dropout(y, options.dropout);
    std::vector<Var> outputs;
    for (std::size_t direction = 0; direction < directions; ++direction) {
      const std::size_t at = which + direction;
      const std::optional<Var> h0 = state_at(inputs.h0, at, weights.size()),
                               c0 = state_at(inputs.c0, at, weights.size());
      const SequenceOptions steps{.reverse = direction == 1, .lengths = inputs.lengths};
      const RecurrentResult result =
          options.segment_steps > 0
              ? recurrent_in_segments(options.segment_steps, cell, y, weights[at], h0, c0, steps)
              : recurrent(cell, y, weights[at], h0, c0, steps);
      outputs.push_back(result.output);
      h.push_back(result.h);
      if (result.c) c.push_back(*result.c);
    }
    y = directions == 1 ? outputs[0] : concat(outputs, 2);
  }
  return {y, stack(h, 0), c.empty() ? std::nullopt : std::optional(stack(c, 0))};
}

RecurrentLayers::RecurrentLayers(Cell cell, std::int64_t input, std::int64_t hidden,
                                 const RecurrentOptions& options)
    : cell_(cell), options_(options) {
  check(input >= 1 && hidden >= 1 && options.num_layers >= 1,
        "recurrent layers: {} layers from {} to {}", options.num_layers, input, hidden);
  check(options.segment_steps >= 0, "recurrent layers: segments of {} steps",
        options.segment_steps);
  check(options.dropout >= 0 && options.dropout < 1,
        "recurrent layers: dropout rate {} outside [0, 1)", options.dropout);
  check(options.proj_size >= 0 && options.proj_size < hidden &&
            (options.proj_size == 0 || cell == Cell::lstm),
        "recurrent layers: a projection to {} of {} (LSTM only)", options.proj_size, hidden);
  const std::int64_t gates = gate_count(cell) * hidden,
                     out = options.proj_size > 0 ? options.proj_size : hidden;
  const std::int64_t directions = options.bidirectional ? 2 : 1;
  for (std::int64_t layer = 0; layer < options.num_layers; ++layer) {
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      Weights w{fmt::format("_l{}{}", layer, direction == 1 ? "_reverse" : ""), {}, {}, {}, {}, {}};
      w.ih = random_weight({gates, layer == 0 ? input : directions * out}, hidden);
      w.hh = random_weight({gates, out}, hidden);
      if (options.bias) w.bias_ih = random_weight({gates}, hidden);
      if (options.bias) w.bias_hh = random_weight({gates}, hidden);
      if (options.proj_size > 0) w.hr = random_weight({out, hidden}, hidden);
      weights.push_back(std::move(w));
    }
  }
}

RecurrentOutputs RecurrentLayers::run(const Var& x, const RecurrentInputs& inputs) {
  check(x.rank() == 3, "recurrent layers: input {} is not samples, steps and features", x.shape());
  Tape& tape = x.tape();
  std::vector<RecurrentWeights> all;
  for (const Weights& w : weights) {
    all.push_back({tape.use(*w.ih), tape.use(*w.hh), used(tape, w.bias_ih), used(tape, w.bias_hh),
                   used(tape, w.hr)});
  }
  const Var samples_first = options_.batch_first ? x : transpose(x, 0, 1);
  RecurrentOutputs y = run_layers(cell_, samples_first, all, inputs,
                                  {.bidirectional = options_.bidirectional,
                                   .dropout = options_.dropout,
                                   .segment_steps = options_.segment_steps});
  if (!options_.batch_first) y.output = transpose(y.output, 0, 1);
  return y;
}

void RecurrentLayers::visit(const Visitor& visitor) {
  for (const Weights& w : weights) {
    visitor("weight_ih" + w.suffix, w.ih);
    visitor("weight_hh" + w.suffix, w.hh);
    visitor("bias_ih" + w.suffix, w.bias_ih);
    visitor("bias_hh" + w.suffix, w.bias_hh);
    visitor("weight_hr" + w.suffix, w.hr);
  }
}

RecurrentCell::RecurrentCell(Cell cell, std::int64_t input, std::int64_t hidden, bool bias)
    : cell_(cell) {
  check(input >= 1 && hidden >= 1, "recurrent cell: from {} to {}", input, hidden);
  const std::int64_t gates = gate_count(cell) * hidden;
  weight_ih = random_weight({gates, input}, hidden);
  weight_hh = random_weight({gates, hidden}, hidden);
  if (bias) bias_ih = random_weight({gates}, hidden);
  if (bias) bias_hh = random_weight({gates}, hidden);
}

RecurrentCell::State RecurrentCell::step(const Var& x, const std::optional<Var>& h,
                                         const std::optional<Var>& c) {
  check(x.rank() == 2, "recurrent cell: input {} is not [samples, features]", x.shape());
  Tape& tape = x.tape();
  const RecurrentWeights w{
      tape.use(*weight_ih), tape.use(*weight_hh), used(tape, bias_ih), used(tape, bias_hh), {}};
  const RecurrentResult y = recurrent(cell_, unsqueeze(x, 1), w, h, c);
  return {y.h, y.c};
}

void RecurrentCell::visit(const Visitor& visitor) {
  visitor("weight_ih", weight_ih);
  visitor("weight_hh", weight_hh);
  visitor("bias_ih", bias_ih);
  visitor("bias_hh", bias_hh);
}

}  // namespace sotto::nn
