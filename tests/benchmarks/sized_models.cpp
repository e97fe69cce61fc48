#include "tests/benchmarks/sized_models.h"

#include <charconv>
#include <string_view>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "samples/models/models.h"
#include "samples/models/resnet.h"
#include "samples/models/workloads.h"

namespace sotto::models {
namespace {

constexpr std::string_view perceptron_prefix = "perceptron:", transformer_prefix = "transformer:";

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

std::vector<Entry> large_networks() {
  constexpr std::int64_t classes = 1000;
  const CausalOptions words{.words = 50257, .length = 512, .width = 768, .heads = 12, .blocks = 12};
  const VisionOptions patches{
      .side = 224, .patch = 16, .width = 768, .heads = 12, .blocks = 12, .classes = classes};
  const ResNetOptions images{.classes = classes, .large_images = true};
  return {{.name = "gpt2-small",
           .description = "twelve causal blocks of width 768 over 512 tokens",
           .make = [=] { return causal_transformer(words); },
           .input = {words.length},
           .classes = words.words,
           .words = words.words,
           .per_position = true},
          {.name = "vit-b16",
           .description = "twelve blocks of width 768 over 16x16 patches of 224x224 images",
           .make = [=] { return vision_transformer(patches); },
           .input = {3, patches.side, patches.side},
           .classes = classes},
          {.name = "resnet50-224",
           .description = "ResNet-50 with group normalisation for 224x224 images",
           .make = [=] { return std::make_unique<ResNet>(images); },
           .input = {3, 224, 224},
           .classes = classes}};
}

}  // namespace

Entry entry_of_any(const std::string& name) {
  for (Entry& entry : large_networks()) {
    if (entry.name == name) return std::move(entry);
  }
  if (name.starts_with(perceptron_prefix)) return sized_perceptron(name);
  if (name.starts_with(transformer_prefix)) return sized_transformer(name);
  return parse_entry(name, sized_names);
}

}  // namespace sotto::models
