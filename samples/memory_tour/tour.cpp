#include "samples/memory_tour/tour.h"

#include <memory>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "samples/models/step_bytes.h"

namespace sotto::memory_tour {

namespace {

using models::StepBytes;
using models::StepOptimizer;
using models::StepPrivacy;
using models::StepSetting;

constexpr std::int64_t wide = 4, narrow = 2;  // bytes of an element

class Tour {
 public:
  explicit Tour(const Network& network) : n_(network) {}

  Exercise footprint() const {
    Exercise e{"Parameters, gradients and the optimizer",
               "parameters, gradients when backward is done, and the optimizer's state",
               "4 P + 4 P (gradients) + 4 P (momentum) or 8 P (Adam), P = layers · width²; states "
               "in bf16 take half; with a fused update no gradient is left",
               {}};
    const std::int64_t p = parameters();
    const auto add = [&](const char* name, std::int64_t predicted, const StepSetting& setting) {
      const StepBytes bytes = step(setting);
      e.rows.push_back(
          row(name, predicted, bytes.parameters + bytes.gradients + bytes.state, bytes));
    };
    add("SGD", 2 * wide * p, {});
    add("SGD with momentum", 3 * wide * p, {.optimizer = StepOptimizer::momentum});
    add("Adam", 4 * wide * p, {.optimizer = StepOptimizer::adam});
    add("Adam, states in bf16", (2 * wide + 2 * narrow) * p,
        {.optimizer = StepOptimizer::adam, .bf16_state = true});
    add("SGD, fused update", wide * p, {.fused_update = true});
    return e;
  }

  Exercise accumulation() const {
    Exercise e{"Accumulation",
               "bytes that one physical batch keeps between forward and backward",
               "4 (layers + 1) · width · batch / parts + 4 · batch / parts: the input, each "
               "layer's result, and the losses",
               {}};
    for (std::int64_t parts = 1; parts <= max_parts; parts *= 2) {
      const StepBytes bytes = step({.accumulation = parts});
      e.rows.push_back(row(parts == 1 ? "the whole batch" : fmt::format("{} parts", parts),
                           kept(parts, wide), bytes.kept, bytes));
      e.rows.back().x = static_cast<double>(parts);
    }
    e.over = "parts";
    return e;
  }

  Exercise checkpointing() const {
    Exercise e{
        "Checkpoints",
        "bytes kept between forward and backward",
        "4 (layers / s + 1) · width · batch + 4 · batch in segments of s layers, of which "
        "each keeps its input: backward recomputes one segment of s layers at a time, so that "
        "the step's peak is least near s = √layers",
        {}};
    for (std::int64_t s = 1; s <= n_.layers; s *= 2) {
      const StepBytes bytes = step({.checkpoint = s == 1 ? 0 : static_cast<int>(2 * s)});
      const std::int64_t segments = (n_.layers + s - 1) / s;
      e.rows.push_back(row(s == 1 ? "all kept" : fmt::format("segments of {} layers", s),
                           wide * (segments + 1) * n_.width * n_.batch + wide * n_.batch,
                           bytes.kept, bytes));
      e.rows.back().x = static_cast<double>(s);
    }
    e.over = "layers of a segment";
    return e;
  }

  Exercise precision() const {
    Exercise e{
        "16-bit values",
        "bytes kept between forward and backward",
        "2 bytes a value instead of 4, and 2 P for the parameters' 16-bit copies, which live "
        "as long as the tape",
        {}};
    const StepBytes f32 = step({}), bf16 = step({.precision = Dtype::bf16});
    e.rows.push_back(row("f32", kept(1, wide), f32.kept, f32));
    e.rows.push_back(row("bf16",
                         kept(1, narrow) + narrow * parameters() + wide * n_.width * n_.batch,
                         bf16.kept, bf16));
    return e;
  }

  Exercise privacy() const {
    Exercise e{
        "Private steps",
        "bytes kept between forward and backward",
        "as without privacy: clipping materializes no per-sample gradient; in one flat pass the "
        "step's peak holds the gradient of each layer's result, too",
        {}};
    const auto add = [&](const char* name, StepPrivacy privacy) {
      const StepBytes bytes = step({.privacy = privacy});
      e.rows.push_back(row(name, kept(1, wide), bytes.kept, bytes));
    };
    add("not private", StepPrivacy::none);
    add("flat clipping, one pass", StepPrivacy::one_pass);
    add("flat clipping, two passes", StepPrivacy::two_passes);
    add("clipping by layer", StepPrivacy::by_layer);
    return e;
  }

 private:
  std::int64_t parameters() const { return n_.layers * n_.width * n_.width; }
  // Losses are f32 in any precision.
  std::int64_t kept(std::int64_t parts, std::int64_t bytes) const {
    const std::int64_t rows = n_.batch / parts;
    return bytes * (n_.layers + 1) * n_.width * rows + wide * rows;
  }
  static Row row(const std::string& name, std::int64_t predicted, std::size_t measured,
                 const StepBytes& bytes) {
    return {name, predicted, static_cast<std::int64_t>(measured),
            static_cast<std::int64_t>(bytes.peak), bytes.seconds()};
  }

  StepBytes step(const StepSetting& setting) const {
    const auto make = [this] {
      auto model = std::make_unique<nn::Sequential>();
      for (std::int64_t layer = 0; layer < n_.layers; ++layer) {
        model->add(nn::Linear(n_.width, n_.width, {.bias = false}));
        model->add(nn::Tanh());
      }
      return model;
    };
    const auto loss = [this](nn::Module& model, Tape& tape, std::int64_t rows) {
      PublicRandom random(0);
      const Tensor x = nn::random_normal({rows, n_.width}, 0, 1, random);
      return sum_per_sample(square(model(tape.input(x))));
    };
    return models::StepRun(make, loss, setting).step(n_.batch);
  }

  Network n_;
};

}  // namespace

std::vector<Exercise> tour(const Network& network) {
  check(network.width >= 1 && network.layers >= 1, "{} layers of width {}", network.layers,
        network.width);
  check(network.batch >= max_parts && network.batch % max_parts == 0,
        "a batch of {} is not a multiple of {}", network.batch, max_parts);
  const Tour tour(network);
  return {tour.footprint(), tour.accumulation(), tour.checkpointing(), tour.precision(),
          tour.privacy()};
}

}  // namespace sotto::memory_tour
