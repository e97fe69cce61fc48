// Checkpointed segments: gradients are equal to the bit with and without them, and memory is less.
// File tags: [engine][sanitized]
#include "autograd/segment.h"

#include "autograd/ops.h"
#include "autograd/per_sample/grouping.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Vars = std::vector<Var>;

Tensor random_values(std::uint64_t stream, const Shape& shape) {
  PublicRandom random(61, stream);
  return uniform_values(random, shape);
}

// The ways to run a model's parts: plainly, as segments, or as segments within segments.
enum class Cut { none, parts, nested };

using Part = std::function<Var(const Var&)>;

Var run(const std::vector<Part>& parts, const Var& x, Cut cut) {
  const auto all = [&parts](const Var& in, bool cut_parts) {
    Var y = in;
    for (const Part& part : parts) y = cut_parts ? segment(part, y) : part(y);
    return y;
  };
  if (cut == Cut::nested) return segment([all](const Var& in) { return all(in, true); }, x);
  return all(x, cut == Cut::parts);
}

// A convolution with standardised weights, normalisation, dropout, attention over the pixels, a
// recurrent layer, a weight that two parts use (one of them transposed), and a frozen parameter.
struct Network {
  Parameter kernel{random_values(1, {4, 1, 3, 3})}, gain{random_values(2, {4})},
      shift{random_values(3, {4})}, q{random_values(4, {4, 4})}, ih{random_values(5, {6, 4})},
      hh{random_values(6, {6, 2})}, tied{random_values(7, {3, 2})},
      frozen{random_values(8, {2, 2})};
  std::vector<Part> parts;

  Network() {
    frozen.trainable = false;
    parts.emplace_back([this](const Var& x) {
      Tape& t = x.tape();
      const Var w = normalize(flatten(t.use(kernel)), 1, 1e-3);
      const Var y = conv(x, reshape(w, {4, 1, 3, 3}), t.use(shift), {.padding = {1}});
      return dropout(tanh(y) * reshape(t.use(gain), {4, 1, 1}), 0.4);
    });
    parts.emplace_back([this](const Var& x) {
      const Var pixels = transpose(flatten(x, 2), 1, 2), z = linear(pixels, x.tape().use(q));
      return attention(z, pixels, z, {}, {.causal = true, .dropout = 0.2}) + pixels;
    });
    parts.emplace_back([this](const Var& x) {
      Tape& t = x.tape();
      const Var y = recurrent(Cell::gru, x, {t.use(ih), t.use(hh), {}, {}, {}}).h;
      return tanh(linear(linear(y, t.use(frozen)), t.use(tied)));
    });
    parts.emplace_back([this](const Var& x) {
      return square(linear(dropout(x, 0.3), transpose(x.tape().use(tied), 0, 1)));
    });
  }
  std::vector<Parameter*> trainable() { return {&kernel, &gain, &shift, &q, &ih, &hh, &tied}; }
  Var loss(Tape& tape, const Tensor& x, Cut cut) {
    return sum_per_sample(run(parts, tape.input(x), cut));
  }
};

const Tensor& images() {
  static const Tensor x = random_values(9, {5, 1, 3, 3});
  return x;
}

Gradients ordinary(Network& net, Cut cut) {
  Tape tape({.seed = 3, .step = 2});
  SumSink sink;
  tape.backward(net.loss(tape, images(), cut), sink);
  return sink.gradients();
}

struct Clipped {
  std::vector<std::vector<double>> norms;
  Gradients sums;
};

Clipped clipped(Network& net, Cut cut, const std::vector<ClipGroup>& groups,
                const ClipOptions& options, ClipPasses passes) {
  Clipper clipper(groups, options, passes);
  // Three physical batches: the second groups its rows in pairs, and the third is empty.
  const Grouping pairs{.unit_of_row = {1, 0, 1}, .units = 2, .mean = true};
  const std::vector<Tensor> batches{images().slice(0, 0, 2), images().slice(0, 2, 5),
                                    images().slice(0, 0, 0)};
  for (std::size_t k = 0; k < 3; ++k) {
    Tape tape({.private_data = true, .seed = 3, .first_row = 2 * static_cast<std::int64_t>(k)});
    clipper.add(tape, net.loss(tape, batches[k], cut), k == 1 ? &pairs : nullptr);
  }
  Clipped result{clipper.statistics().norms, {}};
  result.sums = clipper.clipped_sums();
  return result;
}

void check_same(const Gradients& a, const Gradients& b, double tolerated = 0) {
  REQUIRE(a.size() == b.size());
  for (std::size_t k = 0; k < a.size(); ++k) {
    CHECK(a[k].first == b[k].first);
    const std::vector<double> x = values(a[k].second), y = values(b[k].second);
    REQUIRE(x.size() == y.size());
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(x[i] - y[i]) <= tolerated);
  }
}

}  // namespace

TEST_CASE("ordinary gradients are equal to the bit with segments and without") {
  Network net;
  const Gradients plain = ordinary(net, Cut::none);
  CHECK(plain.size() == 7);
  check_same(ordinary(net, Cut::parts), plain);
  check_same(ordinary(net, Cut::nested), plain);
}

TEST_CASE(
    "clipped sums and norms are equal with segments, for every rule, norm method and passes") {
  Network net;
  std::vector<ClipGroup> flat = flat_group(net.trainable(), 0.5), layers;
  for (Parameter* parameter : net.trainable()) layers.push_back({{parameter}, 0.2});
  for (const auto kind : {ClipRule::Kind::minimum, ClipRule::Kind::opacus, ClipRule::Kind::auto_s,
                          ClipRule::Kind::normalize, ClipRule::Kind::psac}) {
    for (const NormMethod norm_method :
         {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
      const ClipOptions options{.rule = {.kind = kind}, .norm_method = norm_method};
      for (const auto& groups : {flat, layers}) {
        const Clipped plain = clipped(net, Cut::none, groups, options, ClipPasses::one);
        for (const Cut cut : {Cut::parts, Cut::nested}) {
          const Clipped once = clipped(net, cut, groups, options, ClipPasses::one);
          // Equal up to rounding: per-sample gradients that are smaller than their factors are
          // materialized.
          for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
            const Clipped got = clipped(net, cut, groups, options, passes);
            check_same(got.sums, plain.sums, 1e-12);
            for (std::size_t group = 0; group < groups.size(); ++group) {
              REQUIRE(got.norms[group].size() == plain.norms[group].size());
              for (std::size_t n = 0; n < got.norms[group].size(); ++n)
                CHECK(got.norms[group][n] == Approx(plain.norms[group][n]).epsilon(1e-10));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a per-sample gradient with segments is that of the sample run alone without them") {
  Network net;
  Tape tape({.seed = 3});
  PerSampleGradSink rows;
  tape.backward(net.loss(tape, images(), Cut::nested), rows);
  for (std::int64_t n = 0; n < images().size(0); ++n) {
    Tape alone({.seed = 3, .first_row = n});
    SumSink sink;
    alone.backward(net.loss(alone, images().slice(0, n, n + 1), Cut::none), sink);
    for (const auto& [parameter, gradient] : sink.gradients())
      check_close(rows.rows(*parameter).select(0, n), values(gradient));
  }
}

TEST_CASE("randomness after a segment is what it is without one") {
  Tape tape({.seed = 8}), plain({.seed = 8});
  const Tensor x = random_values(10, {4, 6});
  const auto drop = [](const Var& v) { return dropout(v, 0.5); };
  const Var y = drop(segment(drop, tape.input(x))), z = drop(drop(plain.input(x)));
  CHECK(same_bits(y.value(), z.value()));
  CHECK(tape.next_key() == plain.next_key());
}

TEST_CASE("several views of a sample pass a segment, and it may join them itself") {
  Parameter w(random_values(11, {3, 4}));
  const Tensor x = random_values(12, {6, 4});
  const auto norms = [&](bool cut) {
    const Part distance = [&](const Var& v) {
      const Vars views = split_views(dropout(linear(v, v.tape().use(w)), 0.3), 2);
      return sum_per_sample(square(views[0] - tanh(views[1])));
    };
    Clipper clipper(flat_group({&w}, 1));
    Tape tape({.private_data = true});
    const Var in = tape.input_views(x, 2);
    clipper.add(tape, cut ? segment(distance, in) : distance(in));
    return clipper.statistics().norms[0];
  };
  const std::vector<double> cut = norms(true), plain = norms(false);
  REQUIRE(cut.size() == 3);
  // The views leave the segment, and are joined outside.
  const auto apart = [&](bool in_segment) {
    const Part rows = [&](const Var& v) { return tanh(linear(v, v.tape().use(w))); };
    Clipper clipper(flat_group({&w}, 1));
    Tape tape({.private_data = true});
    const Var in = tape.input_views(x, 2);
    const Vars views = split_views(in_segment ? segment(rows, in) : rows(in), 2);
    clipper.add(tape, sum_per_sample(square(views[0] - views[1])));
    return clipper.statistics().norms[0];
  };
  const std::vector<double> joined = apart(true), alone = apart(false);
  for (std::size_t n = 0; n < 3; ++n) CHECK(joined[n] == Approx(alone[n]).epsilon(1e-12));
  for (std::size_t n = 0; n < 3; ++n) CHECK(cut[n] == Approx(plain[n]).epsilon(1e-12));
}

TEST_CASE("inputs get their gradients through a segment, those of mixed values too") {
  const Tensor x = random_values(13, {4, 3});
  const auto gradient = [&](bool cut) {
    Tape tape;
    const Var in = tape.input(x, 0, true),
              scale = tape.constant(full({3}, 1, Dtype::f64), SampleAxis::shared(), true);
    const auto centred = [](const Vars& v) { return Vars{v[0] * v[1] - mean(v[0], {0}, true)}; };
    const Var y = cut ? segment(centred, {in, scale})[0] : centred({in, scale})[0];
    const auto tail = [](const Var& v) { return affine(sum(square(v)), 2, 0); };
    SumSink sink;
    tape.backward(cut ? segment(tail, y) : tail(y), sink);
    std::vector<double> all = values(tape.grad(in));
    for (const double v : values(tape.grad(scale))) all.push_back(v);
    return all;
  };
  CHECK(gradient(true) == gradient(false));
}

TEST_CASE("a private tape refuses to mix samples inside a segment, too") {
  Tape tape({.private_data = true});
  const Var x = tape.input(random_values(14, {4, 3}));
  CHECK(throws([&] { segment([](const Var& v) { return sum(v); }, x); }, "sum: combines samples"));
  CHECK(throws(
      [&] {
        segment([](const Var& v) { return v.tape().constant(v.value(), SampleAxis::mixed()); }, x);
      },
      "mixed samples"));
}

TEST_CASE("values from outside must be inputs of a segment") {
  Parameter w(random_values(15, {3, 3}));
  Tape tape, other;
  const Var x = tape.input(random_values(16, {4, 3})), outside = tape.use(w);
  const char* advice = "inside a segment, use only its inputs and values computed from them";
  CHECK(throws([&] { segment([&](const Var& v) { return linear(v, outside); }, x); }, advice));
  CHECK(
      throws([&] { segment([&](const Var& v) { return select(outside, 0, 0) * v; }, x); }, advice));
  CHECK(throws([&] { segment([&](const Var&) { return tanh(x); }, x); },
               "result belongs to another"));
  CHECK(throws(
      [&] {
        segment([](const Vars& v) { return v; }, Vars{x, other.use(w)});
      },
      "inputs of different tapes"));
  CHECK(throws([&] { segment([](const Vars& v) { return v; }, Vars{}); }, "no inputs"));
  CHECK(throws(
      [&] {
        segment([&](const Vars& v) { return Vars{linear(v[0], v[1]), v[1]}; }, Vars{x, outside});
      },
      "1 of 2 results are shared"));
  // Values leave a segment only as its results.
  Var kept;
  segment([&](const Var& v) { return kept = linear(v, v.tape().use(w)); }, x);
  CHECK(throws([&] { segment([&](const Var& v) { return v + kept; }, x); }, "add: an input"));
}

TEST_CASE("a segment whose recomputation differs is refused") {
  Parameter w(random_values(17, {3, 3})), b(random_values(18, {3}));
  const auto second = [&](const std::function<Var(const Var&, bool again)>& function) {
    bool again = false;
    Tape tape;
    SumSink sink;
    const Var y = segment([&](const Var& v) { return function(v, std::exchange(again, true)); },
                          tape.input(random_values(19, {2, 3})));
    return throws([&] { tape.backward(sum(y), sink); }, "segment: ");
  };
  const auto use = [&](const Var& v) { return linear(v, v.tape().use(w)); };
  CHECK(second([&](const Var& v, bool again) { return again ? dropout(use(v), 0.5) : use(v); }));
  CHECK(second([&](const Var& v, bool again) { return again ? slice(use(v), 1, 0, 2) : use(v); }));
  CHECK(
      second([&](const Var& v, bool again) { return again ? use(v) + v.tape().use(b) : use(v); }));
  CHECK(
      second([&](const Var& v, bool again) { return again ? use(v) : use(v) + v.tape().use(b); }));
  CHECK(second([&](const Var& v, bool again) {
    w.trainable = !again;
    return use(v) + v.tape().use(b);
  }));
}

// docs/appendix/memory-notes.md: the tape keeps the inputs of the segments, and the values of one
// segment at a time.
TEST_CASE("a tape keeps the input of each segment, and the values inside of one at a time") {
  constexpr std::int64_t n = 64, width = 128, depth = 12;
  constexpr std::size_t value = n * width * sizeof(float);
  const auto stage = [](const Var& x) { return tanh(tanh(tanh(tanh(x)))); };
  const auto bytes = [&](std::int64_t cut, std::size_t& peak) {
    Tape tape;
    SumSink sink;
    Var y = tape.input(zeros({n, width}), 0, true);
    const std::size_t before = allocator(Device{}).statistics().current;
    for (std::int64_t k = 0; k < depth; k += cut) {
      const auto stages = [=](const Var& x) {
        Var z = x;
        for (std::int64_t i = 0; i < cut; ++i) z = stage(z);
        return z;
      };
      y = cut == 1 ? stages(y) : segment(stages, y);
    }
    const std::size_t kept = allocator(Device{}).statistics().current - before;
    allocator(Device{}).reset_peak();
    tape.backward(y, sink);
    peak = allocator(Device{}).statistics().peak - before;
    return kept;
  };
  std::size_t peak = 0, cut_peak = 0;
  // One value is written over another that has no further use.
  CHECK(bytes(1, peak) == (4 * depth - 1) * value);
  CHECK(bytes(3, cut_peak) == 4 * value);
  CHECK(peak >= 4 * depth * value);
  // The inputs, the values of three stages, and a few gradients.
  CHECK(cut_peak <= (4 + 12 + 3) * value);
}
