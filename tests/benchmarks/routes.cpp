// Prints a table, in Markdown: for gradients of common layers, the predicted and the measured time
// of each norm method (norm and weighted sum), and the slowdown of the chosen method over the
// fastest. OMP_NUM_THREADS=1 makes it comparable with the cost model, which assumes one core.
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/benchmarks/timing.h"

using namespace sotto;

namespace {

constexpr std::int64_t samples = 32;
constexpr std::size_t budget = std::size_t{1} << 30;

struct Case {
  std::string name;
  PerSampleGrad gradient;
};

Tensor normal_values(const Shape& shape) {
  PublicRandom random(static_cast<std::uint64_t>(shape.numel()));
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(random.normal());
  return Tensor::from(values, shape);
}

Case linear(const std::string& name, std::int64_t positions, std::int64_t in, std::int64_t out) {
  return {fmt::format("{}, {} to {}, T = {}", name, in, out, positions),
          PerSampleGrad::outer(normal_values({samples, positions, out}),
                               normal_values({samples, positions, in}), {out, in})};
}

Case convolution(std::int64_t side, std::int64_t in, std::int64_t out) {
  Window window;
  for (const int axis : {1, 2}) {
    window.kernel[axis] = 3;
    window.before[axis] = window.after[axis] = 1;
  }
  const Tensor x = channels_last(normal_values({samples, in, 1, side, side}));
  const Tensor dy = channels_last(normal_values({samples, out, 1, side, side}));
  return {fmt::format("Conv2d 3x3, {} to {}, {} x {}", in, out, side, side),
          PerSampleGrad::patches(dy, x, window, {out, in, 3, 3})};
}

Case table(std::int64_t rows) {
  constexpr std::int64_t positions = 64, width = 16;
  PublicRandom random(7);
  std::vector<std::int64_t> ids(samples * positions);
  for (std::int64_t& id : ids) id = random.below(rows);
  return {fmt::format("Embedding, {} x {}, T = {}", rows, width, positions),
          PerSampleGrad::onehot(Tensor::from(ids, {samples, positions}),
                                normal_values({samples, positions, width}), {rows, width})};
}

std::vector<Case> cases() {
  return {linear("Linear", 1, 512, 512),
          linear("Linear", 16, 512, 512),
          linear("Linear", 256, 512, 512),
          linear("Linear", 1024, 512, 512),
          convolution(28, 16, 32),
          convolution(14, 32, 64),
          convolution(7, 64, 128),
          convolution(16, 64, 64),
          convolution(8, 64, 128),
          convolution(8, 128, 128),
          convolution(4, 128, 256),
          table(1000),
          table(50000),
          linear("LSTM, hidden weights", 128, 100, 400)};
}

// One norm method.
struct Method {
  const char* name;
  double predicted;
  double measured;
};

std::vector<Method> methods(const PerSampleGrad& f, const Tensor& weights) {
  const auto seconds = [&](const PerSampleGrad& g, NormMethod norm_method) {
    return fastest_seconds([&] {
             dot(g, g, norm_method);
             g.sum(weights);
           }) /
           samples;
  };
  const auto kept = [&] {
    const PerSampleGrad rows = f.materialize_if_cheaper(NormMethod::materialize, budget);
    dot(rows, rows);
    rows.sum(weights);
  };
  const PerSampleTimes t = f.times();
  std::vector<Method> all{{"gram", t.ghost_norm + t.sum, seconds(f, NormMethod::ghost)}};
  // Per-sample gradients of a table of 50,000 words do not fit.
  if (f.form() == std::string("onehot")) return all;
  all.push_back({"rows, kept", t.kept, fastest_seconds(kept) / samples});
  all.push_back({"rows, passed", t.materialized_norm + t.sum, seconds(f, NormMethod::materialize)});
  return all;
}

std::string chosen(const PerSampleGrad& f) {
  if (f.materialize_if_cheaper(NormMethod::automatic, budget).form() == std::string("dense"))
    return "rows, kept";
  const PerSampleTimes t = f.times();
  return t.ghost_norm <= t.materialized_norm ? "gram" : "rows, passed";
}

std::string row(const Case& c) {
  const std::vector<Method> all = methods(c.gradient, full({samples}, 0.5));
  const std::string choice = chosen(c.gradient);
  double best = all[0].measured, taken = 0;
  std::string text = "| " + c.name + " |";
  for (const char* name : {"gram", "rows, kept", "rows, passed"}) {
    std::string cell = " |";
    for (const Method& method : all) {
      if (method.name != std::string(name)) continue;
      // For a table's gradient the model only knows that materializing never pays.
      const bool known = method.predicted > 0;
      cell =
          fmt::format(" {} / {:.1f} |", known ? fmt::format("{:.1f}", method.predicted * 1e6) : "-",
                      method.measured * 1e6);
      best = std::min(best, method.measured);
      if (method.name == choice) taken = method.measured;
    }
    text += cell;
  }
  return text + fmt::format(" {} | {:.2f} |", choice, taken / best);
}

}  // namespace

int main() {
  fmt::print("Microseconds for one sample, predicted / measured; {}.\n\n", backend(cpu).name());
  fmt::print(
      "| gradient | gram | rows, kept | rows, passed | chosen | over the fastest |\n"
      "|---|--:|--:|--:|---|--:|\n");
  for (const Case& c : cases()) fmt::print("{}\n", row(c));
}
