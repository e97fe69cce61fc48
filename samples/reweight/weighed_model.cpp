#include "samples/reweight/weighed_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/join.h"
#include "dp/clipping/sample_values.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/physical_batches.h"
#include "multilevel/gradient_vectors.h"

namespace sotto::reweight {

namespace {

constexpr std::int64_t hidden = 20;  // units of the weigher
// The weigher's first weights are near sigmoid(1) = 0.73: rows count before it has learned.
constexpr double first_logit = 1;
// Makes gradients of the weigher about as long as its clip bound, a part of the classifier's: of
// unit directions in some ten thousand dimensions, products are small.
constexpr double weigher_scale = 8;

struct Named {
  const char* name;
  Method method;
};
constexpr Named methods[] = {{"none", Method::none},
                             {"gate", Method::gate},
                             {"network", Method::network},
                             {"clean-only", Method::clean_only}};

nn::Sequential make_weigher(std::int64_t classes) {
  nn::Linear last(hidden, 1);
  copy_into(full({1}, first_logit), last.bias->value);
  return nn::Sequential{nn::Linear(1 + classes, hidden), nn::Tanh(), std::move(last),
                        nn::Sigmoid()};
}

// 1 for each row's label, else 0: [n, classes].
Tensor one_hot(const Tensor& labels, std::int64_t classes, const Tensor& like) {
  const Tensor ids = labels.to(cpu);
  const Tensor rows = zeros({ids.numel(), classes});
  for (std::int64_t k = 0; k < ids.numel(); ++k)
    rows.data<float>()[k * classes + ids.data<std::int64_t>()[k]] = 1;
  return to_dtype(rows, like.dtype()).to(like.device());
}

Var losses_of(Tape& tape, WeighedModel& model, const Dataset& batch) {
  return cross_entropy(model(tape.input(batch.inputs)), batch.targets);
}

Dataset on_device_of(WeighedModel& model, const Dataset& data) {
  const Device device = model.classifier_parameters().front()->value.device();
  return data.map([device](const Tensor& x) { return x.to(device); });
}

// run(part) for consecutive parts of the data. When memory runs out, clear() is called, and it
// begins again with smaller ones.
void over_parts(const Dataset& data, std::int64_t at_once,
                const std::function<void(const Dataset&)>& run,
                const std::function<void()>& clear) {
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(data.size()), 1);
  const auto lost = [&] {
    clear();
    return true;
  };
  memory::PhysicalBatches(at_once).over(
      rows, [&](std::int64_t begin, std::int64_t end) { run(data.slice(begin, end)); }, lost);
}

}  // namespace

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  for (const Named& named : methods) names.emplace_back(named.name);
  return names;
}

Method method_of(const std::string& name) {
  for (const Named& named : methods) {
    if (name == named.name) return named.method;
  }
  fail(
      fmt::format("--method: none is called {} (there are: {})", name, join(method_names(), ", ")));
}

WeighedModel::WeighedModel(std::unique_ptr<nn::Module> classifier,
                           const std::optional<Weigher>& weigher)
    : classifier_(std::move(classifier)) {
  if (!weigher) return;
  classes_ = weigher->classes;
  weigher_.emplace(make_weigher(classes_));
}

void WeighedModel::visit(const nn::Visitor& visitor) {
  visitor("classifier", *classifier_);
  if (weigher_) visitor("weigher", *weigher_);
}

Var WeighedModel::weights(const Var& losses, const Tensor& labels) {
  check(weigher_.has_value(), "weights: the model has no weigher");
  Var seen = unsqueeze(losses, 1);
  if (classes_ > 0) {
    Tape& tape = losses.tape();
    seen = concat({seen, tape.input(one_hot(labels, classes_, losses.value()))}, 1);
  }
  return squeeze((*weigher_)(seen), 1);
}

RowWeights::RowWeights(Method method, const Dataset& clean, std::int64_t clean_batch,
                       std::int64_t at_once)
    : method_(method),
      clean_(clean),
      clean_batch_(std::min(clean_batch, clean.size())),
      at_once_(at_once) {}

// Steps go through the clean rows cyclically, so that a resumed run sees the same.
void RowWeights::begin_step(WeighedModel& model, std::int64_t step, const Clipper* clipper) {
  clipper_ = clipper;
  if (method_ != Method::gate && method_ != Method::network) return;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(clean_batch_));
  std::iota(rows.begin(), rows.end(), step * clean_batch_);
  for (std::int64_t& row : rows) row %= clean_.size();
  set_direction(model, clean_.batch(rows));
}

void RowWeights::set_direction(WeighedModel& model, const Dataset& rows) {
  const auto clear = [this] { direction_.clear(); };
  clear();
  const auto add = [&](const Dataset& part) {
    Tape tape({.training = false});
    SumSink sums;
    tape.backward(losses_of(tape, model, on_device_of(model, part)), sums);
    for (const auto& [parameter, sum] : sums.gradients()) accumulate(direction_, *parameter, sum);
  };
  over_parts(rows, at_once_, add, clear);
  const double norm = multilevel::norm(direction_);
  check(std::isfinite(norm), "the gradient of the clean rows' loss is not finite");
  direction_ = multilevel::scaled(direction_, norm > 0 ? 1 / norm : 0);
}

Var RowWeights::weights(WeighedModel& model, const Var& losses, const Dataset& batch) const {
  if (method_ == Method::network) return model.weights(detach(losses), batch.targets);
  const Var products = gradient_products(losses, direction_);
  return greater(products, 0 * products);
}

Var RowWeights::losses(Tape& tape, WeighedModel& model, const Dataset& batch) const {
  const Var losses = losses_of(tape, model, batch);
  if (method_ != Method::gate && method_ != Method::network) return losses;
  const bool is_private = tape.options().private_data;
  const Var weights = this->weights(model, losses, batch);
  Var step = losses;
  if (is_private) {
    const auto classifier = model.classifier_parameters();
    tape.set_sample_weights(detach(weights), {classifier.begin(), classifier.end()});
  } else {
    const Var weighed = detach(weights) * losses;
    step = weighed + detach(losses - weighed);  // the loss that is reported has no weights
  }
  if (method_ == Method::gate) return step;
  Var products = gradient_products(losses, direction_);
  if (is_private) {
    const ClipGroup& classifier = clipper_->groups().front();
    products = clip_factors(losses, classifier, clipper_->options().rule) * products;
  }
  const Var upper = -weigher_scale * products * weights;
  return step + (upper - detach(upper));
}

Tensor RowWeights::weights_of(WeighedModel& model, const Dataset& rows) {
  if (method_ == Method::gate) set_direction(model, clean_);
  std::vector<Tensor> parts;
  const auto add = [&](const Dataset& part) {
    Tape tape({.training = false});
    const Dataset there = on_device_of(model, part);
    const Tensor values = weights(model, losses_of(tape, model, there), there).value();
    parts.push_back(to_dtype(values.to(cpu), Dtype::f64));
  };
  over_parts(rows, at_once_, add, [&parts] { parts.clear(); });
  return concat(parts, 0);
}

}  // namespace sotto::reweight
