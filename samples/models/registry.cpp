#include "samples/models/registry.h"

#include "autograd/ops.h"
#include "core/join.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "samples/models/models.h"
#include "samples/models/workloads.h"

namespace sotto::models {

namespace {

template <class M, class... A>
std::function<std::unique_ptr<nn::Module>()> maker(A... arguments) {
  return [=] { return std::make_unique<M>(arguments...); };
}

std::function<std::unique_ptr<nn::Module>()> perceptron_maker(
    const std::vector<std::int64_t>& widths, bool nonlinear) {
  return [=] { return std::make_unique<nn::Sequential>(perceptron(widths, nonlinear)); };
}

// The six workloads of Subramani et al. 2021, in their order.
std::vector<Entry> workloads() {
  return {{.name = "logreg",
           .description = "logistic regression on the 104 features of Adult",
           .make = maker<nn::Linear>(adult_features, std::int64_t{1}),
           .input = {adult_features},
           .classes = 1},
          {.name = "ffnn",
           .description = "104 features to 50 to 2 classes",
           .make = perceptron_maker({adult_features, 50, 2}, true),
           .input = {adult_features},
           .classes = 2},
          {.name = "mnist",
           .description = "two convolutions and two dense layers for 28x28 grey images",
           .make = maker<MnistNetwork>("relu"),
           .input = {1, 28, 28},
           .classes = 10},
          {.name = "cifar10",
           .description = "eight convolutions 3x3 for 32x32 images",
           .make = [] { return cifar_network(); },
           .input = {3, 32, 32},
           .classes = 10},
          {.name = "embed",
           .description = "the mean of 256 embedded words, and a linear layer",
           .make = embedding_network,
           .input = {imdb_length},
           .classes = 2,
           .words = imdb_words},
          {.name = "lstm",
           .description = "an LSTM of width 100 over 256 words",
           .make = lstm_network,
           .input = {imdb_length},
           .classes = 2,
           .words = imdb_words}};
}

std::vector<Entry> image_networks() {
  const Shape image{3, 32, 32};
  return {{.name = "resnet18",
           .description = "ResNet-18 with group normalisation for 32x32 images",
           .make = [] { return resnet18(); },
           .input = image,
           .classes = 10},
          {.name = "resnet50",
           .description = "ResNet-50 with group normalisation for 32x32 images",
           .make = [] { return resnet50(); },
           .input = image,
           .classes = 10},
          {.name = "wrn16",
           .description = "WRN-16-4 with standardised weights for 32x32 images",
           .make = [] { return wide_resnet(); },
           .input = image,
           .classes = 10},
          {.name = "vit",
           .description = "vision transformer of width 192 over 4x4 patches of 32x32 images",
           .make = [] { return vision_transformer(); },
           .input = image,
           .classes = 10}};
}

std::vector<Entry> other_networks() {
  return {{.name = "perceptron",
           .description = "linear layers 5120 to 2560 to 1280 without bias and nonlinearity",
           .make = perceptron_maker({5120, 2560, 1280}, false),
           .input = {5120},
           .classes = 1280},
          {.name = "transformer",
           .description = "two encoder blocks of width 128 over 64 words",
           .make = maker<Transformer>(),
           .input = {64},
           .classes = 2,
           .words = 1000},
          {.name = "gpt2",
           .description = "six causal blocks of width 384 over 128 characters",
           .make = [] { return causal_transformer(); },
           .input = {text_length},
           .classes = characters,
           .words = characters,
           .per_position = true}};
}

std::vector<Entry> all_entries() {
  std::vector<Entry> all = workloads();
  for (const auto& more : {image_networks(), other_networks()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

Tensor random_ids(const Shape& shape, std::int64_t below, PublicRandom& random) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(shape.numel()));
  for (std::int64_t& id : ids) id = random.below(below);
  return Tensor::from(ids, shape);
}

}  // namespace

Examples Entry::random_examples(std::int64_t n, std::uint64_t seed) const {
  PublicRandom random(seed);
  Shape shape = input;
  shape.insert(0, n);
  const Tensor inputs =
      words > 0 ? random_ids(shape, words, random) : nn::random_normal(shape, 0, 1, random);
  const Shape labelled = per_position ? Shape{n, input[0]} : Shape{n};
  return {inputs, random_ids(labelled, std::max<std::int64_t>(2, classes), random)};
}

Var Entry::losses(const Var& logits, const Tensor& labels) const {
  if (classes > 1) return cross_entropy(logits, labels, {.class_axis = per_position ? 2 : 1});
  const Tensor targets = to_dtype(labels, logits.dtype()).unsqueeze(1);
  return binary_cross_entropy_with_logits(logits, logits.tape().input(targets));
}

const std::vector<Entry>& registry() {
  static const std::vector<Entry> entries = all_entries();
  return entries;
}

std::string model_names() {
  std::vector<const char*> names;
  for (const Entry& entry : registry()) names.push_back(entry.name);
  return join(names, ", ");
}

const Entry& parse_entry(std::string_view name, std::string_view others) {
  for (const Entry& entry : registry()) {
    if (entry.name == name) return entry;
  }
  fail(fmt::format("no model is called {}; known models are {}{}{}", name, model_names(),
                   others.empty() ? "" : "; ", others));
}

}  // namespace sotto::models
