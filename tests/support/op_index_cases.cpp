// Random cases of the operations that select elements, resample images or process sequences.
#include "autograd/ops.h"
#include "core/random/philox.h"
#include "tests/support/op_cases.h"

namespace sotto {

namespace {

using Vars = std::vector<Var>;

// Ids for a value of `shape` along `axis`: of equal size, except for the axis and perhaps others
// that are not the sample axis.
OpInput ids_for(PublicRandom& random, const Shape& shape, int axis, SampleAxis samples) {
  Shape size = shape;
  size[axis] = draw(random, 1, 4);
  for (int i = 0; i < size.rank(); ++i) {
    if (i != axis && !(samples == SampleAxis(i)) && one_in(random, 3))
      size[i] = draw(random, 1, size[i]);
  }
  return {random_ids(random, size, shape[axis]), samples, false};
}

// Any axis of a rank, except the sample axis.
int axis_beside(PublicRandom& random, int rank, SampleAxis samples) {
  while (true) {
    const int axis = static_cast<int>(random.below(rank));
    if (!(samples == SampleAxis(axis))) return axis;
  }
}

Instance gather_case(PublicRandom& random) {
  const OpInput x = random_input(random, random_shape(random, 3), 3);
  const int axis = axis_beside(random, 3, x.samples);
  return {{x, ids_for(random, x.value.shape(), axis, x.samples)},
          [axis](const Vars& v) { return gather(v[0], axis, v[1]); }};
}

Instance gather_from_shared(PublicRandom& random) {
  const Shape shape = random_shape(random, 2);
  const int samples = static_cast<int>(random.below(2)), axis = static_cast<int>(random.below(2));
  Shape size = shape;
  size[axis] = draw(random, 1, 4);
  // The ids' size along the sample axis is the number of samples, independent of the size of x.
  if (samples != axis) size[samples] = draw(random, 1, size[samples]);
  return {{parameter(random, shape), {random_ids(random, size, shape[axis]), samples, false}},
          [axis](const Vars& v) { return gather(v[0], axis, v[1]); }};
}

Instance scatter_case(PublicRandom& random) {
  const OpInput x = random_input(random, random_shape(random, 3), 3);
  const int axis = axis_beside(random, 3, x.samples);
  const OpInput ids = ids_for(random, x.value.shape(), axis, x.samples);
  return {{x, ids, {uniform_values(random, ids.value.shape()), x.samples}},
          [axis](const Vars& v) { return scatter_add(v[0], axis, v[1], v[2]); }};
}

Instance sort_case(PublicRandom& random) {
  const OpInput x = random_input(random, random_shape(random, 3), 3);
  const int axis = axis_beside(random, 3, x.samples);
  const bool descending = one_in(random, 2);
  return {{x}, [=](const Vars& v) { return sort(v[0], axis, descending).values; }};
}

Instance extreme_case(PublicRandom& random) {
  const OpInput x = random_input(random, random_shape(random, 3), 3);
  const int axis = axis_beside(random, 3, x.samples);
  const bool largest = one_in(random, 2), keepdim = one_in(random, 2);
  return {{x}, [=](const Vars& v) {
            return largest ? max(v[0], axis, keepdim) : min(v[0], axis, keepdim);
          }};
}

Instance transposed_case(PublicRandom& random) {
  const int axes = static_cast<int>(draw(random, 1, 3));
  ConvTransposeOptions options;
  options.groups = draw(random, 1, 2);
  const std::int64_t c = options.groups * draw(random, 1, 2), o = draw(random, 1, 2);
  Shape shape{draw(random, 1, 3), c}, kernel{c, o};
  options.stride = options.padding = options.output_padding = options.dilation = Shape{};
  for (int i = 0; i < axes; ++i) {
    shape.push_back(draw(random, 2, 3));
    kernel.push_back(draw(random, 2, 3));
    options.stride.push_back(draw(random, 1, 2));
    options.dilation.push_back(draw(random, 1, 2));
    options.padding.push_back(draw(random, 0, 1));
    options.output_padding.push_back(
        draw(random, 0, std::max(options.stride[i], options.dilation[i]) - 1));
  }
  std::vector<OpInput> inputs{{uniform_values(random, shape), 0}, parameter(random, kernel)};
  if (one_in(random, 6)) inputs[0].samples = SampleAxis::shared();
  if (one_in(random, 2)) inputs.push_back(parameter(random, {o * options.groups}));
  return {inputs, [options](const Vars& x) {
            return conv_transpose(x[0], x[1], x.size() > 2 ? std::optional(x[2]) : std::nullopt,
                                  options);
          }};
}

Instance upsample_case(PublicRandom& random) {
  const int axes = static_cast<int>(draw(random, 1, 2));
  Shape shape{draw(random, 1, 3), 2}, size;
  for (int i = 0; i < axes; ++i) {
    shape.push_back(draw(random, 1, 4));
    size.push_back(draw(random, 1, 6));
  }
  const UpsampleOptions options{one_in(random, 2) ? Interpolation::nearest : Interpolation::linear,
                                one_in(random, 2)};
  return {{{uniform_values(random, shape), 0}},
          [=](const Vars& v) { return upsample(v[0], size, options); }};
}

Instance attention_case(PublicRandom& random) {
  const std::int64_t n = draw(random, 1, 3), heads = draw(random, 1, 2), a = draw(random, 1, 4),
                     b = draw(random, 1, 4), d = draw(random, 1, 3);
  AttentionOptions options{.causal = one_in(random, 2), .dropout = one_in(random, 2) ? 0.3 : 0.0};
  if (one_in(random, 2)) options.scale = 0.7;
  options.always_visible = draw(random, 0, 1);
  std::vector<OpInput> inputs{{uniform_values(random, {n, heads, a, d}), 0},
                              {uniform_values(random, {n, heads, b, d}), 0},
                              {uniform_values(random, {n, heads, b, 2}), 0}};
  // Keys and values shared by all samples.
  for (const int i : {1, 2}) {
    if (one_in(random, 4))
      inputs[static_cast<std::size_t>(i)] = parameter(random, {heads, b, i == 1 ? d : 2});
  }
  const std::int64_t kind = draw(random, 0, 3);
  if (kind == 1) inputs.push_back({uniform_values(random, {a, b}), SampleAxis::shared(), false});
  if (kind == 2) inputs.push_back({uniform_values(random, {n, 1, 1, b}), 0, false});
  if (kind == 3) inputs.push_back({uniform_values(random, {a, b}), SampleAxis::shared(), true});
  if (kind == 3) options.dropout = 0;
  return {inputs, [=](const Vars& v) {
            return attention(v[0], v[1], v[2], kind == 0 ? Vars{} : Vars{v[3]}, options);
          }};
}

// All results of a sequence, concatenated.
Var all_of(const RecurrentResult& y) {
  Var joined = concat({flatten(y.output), y.h}, 1);
  return y.c ? concat({joined, *y.c}, 1) : joined;
}

// The sequence in segments of `steps` steps, or at once.
Instance recurrent_case(PublicRandom& random, Cell cell, std::int64_t steps = 0) {
  const std::int64_t n = draw(random, 1, 3), t = draw(random, 1, 4), in = draw(random, 1, 3),
                     hidden = draw(random, 2, 3);
  const bool projected = cell == Cell::lstm && one_in(random, 2), biased = one_in(random, 2),
             given = one_in(random, 2), some = one_in(random, 2), reverse = one_in(random, 2);
  const std::int64_t out = projected ? 1 : hidden, gates = gate_count(cell) * hidden;
  std::vector<OpInput> inputs{{uniform_values(random, {n, t, in}), 0},
                              parameter(random, {gates, in}),
                              parameter(random, {gates, out})};
  const auto add = [&](bool wanted, const OpInput& input) {
    if (wanted) inputs.push_back(input);
    return wanted;
  };
  add(biased, parameter(random, {gates}));
  add(biased, parameter(random, {gates}));
  add(projected, parameter(random, {out, hidden}));
  add(given, {uniform_values(random, {n, out}), 0});
  add(given && cell == Cell::lstm, {uniform_values(random, {n, hidden}), 0});
  add(some, {random_ids(random, {n}, t + 1), 0, false});
  return {
      inputs, [=](const Vars& v) {
        std::size_t at = 3;
        const auto next = [&](bool there) { return there ? std::optional(v[at++]) : std::nullopt; };
        RecurrentWeights w{v[1], v[2], {}, {}, {}};
        w.bias_ih = next(biased);
        w.bias_hh = next(biased);
        w.hr = next(projected);
        const auto h0 = next(given), c0 = next(given && cell == Cell::lstm), shorter = next(some);
        SequenceOptions options{.reverse = reverse, .lengths = {}};
        if (shorter) options.lengths = shorter->value();
        return all_of(steps > 0 ? recurrent_in_segments(steps, cell, v[0], w, h0, c0, options)
                                : recurrent(cell, v[0], w, h0, c0, options));
      }};
}

Instance shuffled_case(PublicRandom& random) {
  const std::int64_t n = draw(random, 1, 3), c = draw(random, 1, 3), h = draw(random, 1, 2);
  const bool back = one_in(random, 2);
  const Shape shape = back ? Shape{n, c, 2 * h, 4} : Shape{n, 4 * c, h, 2};
  return {{{uniform_values(random, shape), 0}}, [back](const Vars& x) {
            return back ? pixel_unshuffle(x[0], 2) : pixel_shuffle(x[0], 2);
          }};
}

Instance ctc_case(PublicRandom& random) {
  const std::int64_t steps = draw(random, 1, 5), n = draw(random, 1, 3), max = 2;
  const auto lengths = [&](std::int64_t low, std::int64_t high) {
    std::vector<std::int64_t> values;
    for (std::int64_t k = 0; k < n; ++k) values.push_back(draw(random, low, high));
    return OpInput{Tensor::from(values, {n}), 0, false};
  };
  // Two different labels fit into two steps.
  std::vector<std::int64_t> targets;
  for (std::int64_t k = 0; k < n; ++k) {
    targets.push_back(one_in(random, 2) ? 0 : 2);
    targets.push_back(2 - targets.back());
  }
  return {{{uniform_values(random, {steps, n, 3}), 1},
           {Tensor::from(targets, {n, max}), 0, false},
           lengths(std::min(steps, max), steps),
           lengths(0, std::min(steps, max))},
          [](const Vars& v) {
            return ctc_loss(v[0], v[1].value(), v[2].value(), v[3].value(), {.blank = 1});
          }};
}

}  // namespace

void add_index_cases(std::vector<OpCase>& cases) {
  cases.push_back({"permute", "pixels shuffled and back", shuffled_case});
  cases.push_back({"gather", "any axis", gather_case});
  cases.push_back({"gather", "from a shared value", gather_from_shared});
  cases.push_back({"scatter", "scatter_add", scatter_case});
  cases.push_back({"sort", "any axis", sort_case});
  cases.push_back({"sort", "maximum and minimum", extreme_case});
  cases.push_back({"conv_transpose", "any window", transposed_case});
  cases.push_back({"take", "upsampling", upsample_case});
  cases.push_back({"attention", "any masks", attention_case});
  cases.push_back({"ctc_loss", "any lengths", ctc_case});
  for (const auto& [op, what, cell] :
       {std::tuple("rnn", "tanh", Cell::tanh), std::tuple("rnn", "relu", Cell::relu),
        std::tuple("gru", "any", Cell::gru), std::tuple("lstm", "any", Cell::lstm)}) {
    cases.push_back(
        {op, what, [cell = cell](PublicRandom& random) { return recurrent_case(random, cell); }});
    cases.push_back({"segment_result", op, [cell = cell](PublicRandom& random) {
                       return recurrent_case(random, cell, draw(random, 1, 3));
                     }});
  }
}

}  // namespace sotto
