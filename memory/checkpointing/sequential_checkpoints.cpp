#include "memory/checkpointing/sequential_checkpoints.h"

#include <algorithm>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/precision.h"
#include "autograd/segment.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::memory {

namespace {

// Holds gradients as a step does; with norms, as the two passes of ghost clipping do, whose sums
// are f64.
class Step final : public GradSink {
 public:
  explicit Step(bool norms) : norms_(norms) {}
  bool sums_only() const override { return !norms_; }
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    NormErrorBounds more;
    if (norms_) squared_norm(uses, NormMethod::automatic, &more);
    for (const PerSampleGrad& use : uses)
      accumulate(sums_, parameter, norms_ ? clipped(use) : use.sum());
  }
  static Tensor clipped(const PerSampleGrad& use) {
    const std::int64_t samples = use.samples();
    const Tensor total = zeros(use.shape(), Dtype::f64, use.device());
    use.add_to({total, 0x1p-40}, full({samples}, 0.5, Dtype::f64), {});
    return total;
  }
  std::size_t bytes() const {
    std::size_t all = 0;
    for (const auto& [parameter, sum] : sums_) all += Allocator::size_class(sum.bytes());
    return all;
  }

 private:
  bool norms_;
  Gradients sums_;
};

// Estimates the time of the forward pass's products, which equals that of the weights' gradients.
class Products final : public GradSink {
 public:
  void receive(Parameter&, std::vector<PerSampleGrad> uses) override {
    for (const PerSampleGrad& use : uses)
      seconds_ += use.times().sum * static_cast<double>(use.samples());
  }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = 0;
};

// Counts the bytes in use on a device since its construction.
class Usage {
 public:
  explicit Usage(Device device) : allocator_(&allocator(device)) {
    allocator_->reset_peak();
    before_ = allocator_->statistics().current;
  }
  std::size_t current() const { return allocator_->statistics().current - before_; }
  std::size_t peak() const { return allocator_->statistics().peak - before_; }

 private:
  Allocator* allocator_;
  std::size_t before_;
};

// A module's costs, and its result, which is the next module's input.
struct Measured {
  ChainBlock block;
  Tensor result;
  int sample_axis;
};
Measured measured(nn::Module& module, const Tensor& input, const ChainRun& how) {
  ChainBlock block{.input = Allocator::size_class(input.bytes())};
  const auto run = [&](const Var& x) {
    std::optional<PrecisionRegion> region;
    if (how.precision) region.emplace(x.tape(), *how.precision);
    return module(x);
  };
  const auto start = [&](Tape& tape) {
    return tape.input(input, how.sample_axis, is_float(input.dtype()));
  };
  Tape recorded, again;
  Usage usage(input.device());
  {
    const Var y = run(start(recorded));
    block.record = usage.peak();
    block.kept = usage.current();
    Products products;
    recorded.backward(y, products);
    block.work = products.seconds() + 2 * static_cast<double>(block.kept) /
                                          backend(input.device()).costs(Dtype::f32).bytes;
  }
  usage = Usage(input.device());
  const Var y = segment(run, start(again));
  block.run = usage.peak();
  const std::size_t result = usage.current();
  // A segment's backward is the module's backward without the result, which is still held here.
  Step step(how.private_data);
  again.backward(y, step);
  block.backward = usage.peak() - result;
  block.gradients = step.bytes();
  block.output = Allocator::size_class(y.value().bytes());
  return {block, y.value(), y.samples().batched() ? y.samples().axis() : 0};
}

void collect(const std::vector<ChainPart>& parts, std::vector<nn::Sequential::Segment>& segments) {
  for (const ChainPart& part : parts) {
    if (!part.again) continue;
    segments.push_back({part.begin, part.end});
    collect(part.parts, segments);
  }
}

}  // namespace

void checkpoint_every(nn::Sequential& model, int n, BackwardPasses backwards) {
  check(n >= 1, "checkpoint_every: {} modules", n);
  std::vector<nn::Sequential::Segment> segments;
  for (int begin = 0; begin < model.size(); begin += n)
    segments.push_back({begin, std::min(begin + n, model.size())});
  if (backwards == BackwardPasses::two && segments.size() > 1)
    segments.push_back({0, model.size()});
  model.set_segments(std::move(segments));
}

Chain measured_chain(nn::Sequential& model, const Tensor& input, const ChainRun& how) {
  Chain chain;
  Tensor x = input;
  ChainRun next = how;
  for (int i = 0; i < model.size(); ++i) {
    const Measured found = measured(model[i], x, next);
    chain.push_back(found.block);
    x = found.result;
    next.sample_axis = found.sample_axis;
  }
  return chain;
}

std::vector<nn::Sequential::Segment> segments_of(const ChainPlan& plan) {
  std::vector<nn::Sequential::Segment> segments;
  collect(plan.parts, segments);
  return segments;
}

ChainPlan checkpoint_auto(nn::Sequential& model, const Tensor& input, std::size_t budget,
                          bool private_data) {
  ChainPlan plan = plan_chain(measured_chain(model, input, {.private_data = private_data}), budget,
                              private_data ? BackwardPasses::two : BackwardPasses::one);
  model.set_segments(segments_of(plan));
  return plan;
}

}  // namespace sotto::memory
