#include "tests/benchmarks/sized_models.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/models/efficientnet.h"
#include "nn/models/frozen_norm.h"
#include "nn/models/resnet.h"
#include "nn/models/tuning.h"
#include "samples/models/models.h"
#include "samples/models/workloads.h"
#include "tests/support/encoder.h"

namespace sotto::models {
namespace {

constexpr std::string_view perceptron_prefix = "perceptron:", transformer_prefix = "transformer:",
                           encoder_prefix = "encoder:";

std::int64_t size_in(std::string_view text, const std::string& name) {
  constexpr std::int64_t max = 1 << 20;
  std::int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  check(error == std::errc() && end == text.data() + text.size() && size >= 1 && size <= max,
        "models: {} has a size that is not an integer from 1 to {}", name, max);
  return size;
}

// A network whose weights keep the size of signals in both directions (He et al. 2015): with
// smaller weights, gradients of a deep network become denormal, which is far slower.
std::unique_ptr<nn::Module> deep_perceptron(const std::vector<std::int64_t>& widths) {
  auto layers = std::make_unique<nn::Sequential>(perceptron(widths));
  for (Parameter* parameter : layers->parameters()) {
    const Tensor& value = parameter->value;
    if (value.rank() == 2) copy_into(nn::kaiming_normal(value.shape()), value);
  }
  return layers;
}

Entry sized_perceptron(const std::string& name) {
  constexpr std::int64_t classes = 10;
  const std::string_view sizes = std::string_view(name).substr(perceptron_prefix.size());
  const std::size_t times = sizes.find('x');
  check(times != sizes.npos, "models: {} is not perceptron:WIDTHxDEPTH", name);
  const std::int64_t width = size_in(sizes.substr(0, times), name);
  const std::int64_t depth = size_in(sizes.substr(times + 1), name);
  const auto make = [=] {
    std::vector<std::int64_t> widths(static_cast<std::size_t>(depth + 1), width);
    widths.push_back(classes);
    return deep_perceptron(widths);
  };
  return {.name = name.c_str(),
          .description = "linear layers of one width",
          .make = make,
          .input = {width},
          .classes = classes};
}

Entry sized_transformer(const std::string& name) {
  constexpr std::int64_t words = 1000, width = 64, heads = 2;
  const std::string_view size = std::string_view(name).substr(transformer_prefix.size());
  const std::int64_t length = size_in(size, name);
  const TransformerOptions options{
      .words = words, .length = length, .width = width, .heads = heads, .blocks = 1};
  return {.name = name.c_str(),
          .description = "an encoder block of one length",
          .make = [=] { return std::make_unique<Transformer>(options); },
          .input = {length},
          .classes = options.classes,
          .words = words};
}

// As large as all-MiniLM-L6-v2, with a classifier of two classes on the first position.
Entry sized_encoder(const std::string& name) {
  const std::int64_t length = size_in(std::string_view(name).substr(encoder_prefix.size()), name);
  const EncoderOptions options{.words = 30'522,
                               .positions = std::max<std::int64_t>(length, 512),
                               .width = 384,
                               .heads = 12,
                               .blocks = 6,
                               .hidden = 1536,
                               .classes = 2,
                               .pooler = false};
  return {.name = name.c_str(),
          .description = "six encoder blocks of width 384 over texts of one length",
          .make = [=] { return std::make_unique<Encoder>(options); },
          .input = {length},
          .classes = options.classes,
          .words = options.words};
}

Entry causal(const char* name, const char* description, const CausalOptions& options) {
  return {.name = name,
          .description = description,
          .make = [=] { return causal_transformer(options); },
          .input = {options.length},
          .classes = options.words,
          .words = options.words,
          .per_position = true};
}

Entry vision(const char* name, const char* description, const VisionOptions& options) {
  return {.name = name,
          .description = description,
          .make = [=] { return vision_transformer(options); },
          .input = {options.channels, options.side, options.side},
          .classes = options.classes};
}

Entry residual(const char* name, const char* description, std::int64_t side,
               const nn::ResNetOptions& options) {
  return {.name = name,
          .description = description,
          .make = [=] { return std::make_unique<nn::ResNet>(options); },
          .input = {options.channels, side, side},
          .classes = options.classes};
}

Entry efficientnet(const char* name, const char* description, nn::StoredNorms norms) {
  return {.name = name,
          .description = description,
          .make =
              [=] {
                auto net = std::make_unique<nn::EfficientNet>(
                    nn::parse_efficientnet("efficientnet_lite0"));
                nn::convert_batch_norms(*net, norms);
                return net;
              },
          .input = {3, 128, 128},
          .classes = 1000};
}

std::vector<Entry> large_networks() {
  const CausalOptions words{.words = 50257, .length = 512, .width = 768, .heads = 12, .blocks = 12};
  CausalOptions longer = words, shorter = words;
  longer.length = 1024;
  shorter.length = 256;
  const VisionOptions patches{
      .side = 224, .patch = 16, .width = 768, .heads = 12, .blocks = 12, .classes = 1000};
  return {
      causal("gpt2-small", "twelve causal blocks of width 768 over 512 tokens", words),
      causal("gpt2-256", "the same over 256 tokens", shorter),
      causal("gpt2-1024", "the same over 1,024 tokens", longer),
      vision("vit-b16", "twelve blocks of width 768 over 16x16 patches of 224x224 images", patches),
      residual("resnet50-224", "ResNet-50 with group normalisation for 224x224 images", 224,
               {.blocks = {3, 4, 6, 3}, .bottleneck = true, .norm = {.group = true}}),
      efficientnet("efficientnet-lite0", "with folded batch norms, for 128x128 images",
                   nn::StoredNorms::folded),
      efficientnet("efficientnet-lite0-frozen", "with frozen batch norms, for 128x128 images",
                   nn::StoredNorms::frozen)};
}

// The same kinds as small as tests want them.
std::vector<Entry> tiny_networks() {
  return {causal("gpt2-tiny", "two causal blocks of width 32 over 16 tokens",
                 {.words = 50, .length = 16, .width = 32, .heads = 2, .blocks = 2}),
          vision("vit-tiny", "two blocks of width 32 over 8x8 patches of 32x32 images",
                 {.side = 32, .patch = 8, .width = 32, .heads = 2, .blocks = 2}),
          residual("resnet-tiny", "bottlenecks of width 8 to 64 for 64x64 images", 64,
                   {.blocks = {1, 1, 1, 1},
                    .bottleneck = true,
                    .width = 8,
                    .norm = {.group = true, .groups = 4},
                    .classes = 10})};
}

}  // namespace

Entry entry_of_any(const std::string& name) {
  for (const auto& networks : {large_networks(), tiny_networks()}) {
    for (const Entry& entry : networks) {
      if (entry.name == name) return entry;
    }
  }
  if (name.starts_with(perceptron_prefix)) return sized_perceptron(name);
  if (name.starts_with(transformer_prefix)) return sized_transformer(name);
  if (name.starts_with(encoder_prefix)) return sized_encoder(name);
  return parse_entry(name, sized_names);
}

void tune(nn::Module& model, const std::string& tuning) {
  if (tuning.empty()) return;
  auto* pretrained = dynamic_cast<nn::PretrainedModel*>(&model);
  check(pretrained, "models: a model without named parts is not tuned: {}", tuning);
  apply_tuning(*pretrained, nn::parse_tuning(tuning));
}

Examples examples_for_timing(const Entry& entry, std::int64_t n, std::uint64_t seed) {
  constexpr std::int64_t max_drawn = 1 << 22;
  const std::int64_t drawn =
      std::min(n, std::max<std::int64_t>(1, max_drawn / entry.input.numel()));
  const Examples some = entry.random_examples(drawn, seed);
  const auto repeated = [&](const Tensor& x) {
    std::vector<Tensor> parts;
    for (std::int64_t rows = n; rows > 0; rows -= drawn)
      parts.push_back(x.slice(0, 0, std::min(rows, drawn)));
    return concat(parts, 0);
  };
  return {repeated(some.inputs), repeated(some.labels)};
}

}  // namespace sotto::models
