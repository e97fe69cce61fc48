#include "samples/images/feature_cache.h"

#include <filesystem>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/safetensors.h"
#include "core/io/xxh64.h"

namespace sotto::images {

namespace {

constexpr const char* features_key = "sotto.images.features";

std::span<const std::byte> bytes_of(const Tensor& x) {
  return {x.view().as<const std::byte>(), x.bytes()};
}

// Identifies the pictures and all that their features depend on.
std::string fingerprint(const samples::Data& data, const ImageNetworkOptions& options) {
  const std::uint64_t train = xxh64(bytes_of(data.train.inputs));
  const std::uint64_t both = xxh64(bytes_of(data.test.inputs), train);
  if (options.is_pretrained())
    return fmt::format("{} and {} pictures {:016x}, of {} at {} pixels", data.train.size(),
                       data.test.size(), both, options.start.init, options.input_size);
  return fmt::format("{} and {} pictures {:016x}, {} x {}, {} channels, planes of {} groups{}",
                     data.train.size(), data.test.size(), both, options.shape.size,
                     options.shape.size, options.shape.channels, options.features.groups,
                     options.features.mirror ? ", mirror" : "");
}

TensorFile load_features(const std::string& path, const std::string& wanted) {
  try {
    TensorFile file = load_safetensors(path);
    const auto found = file.metadata.find(features_key);
    check(found != file.metadata.end(), "it has no {}", features_key);
    check(found->second == wanted, "it has the features of other data: {}, not {}", found->second,
          wanted);
    check(file.tensors.contains("train") && file.tensors.contains("test"), "it lacks a part");
    return file;
  } catch (const std::invalid_argument& error) {
    throw SystemFailure(fmt::format("--cache: {}: {} (give another name)", path, error.what()));
  }
}

}  // namespace

std::string replace_by_inputs(samples::Data& data, const ImageNetworkOptions& options,
                              const std::string& path) {
  const std::string key = path.empty() ? "" : fingerprint(data, options);
  std::error_code none;
  if (!path.empty() && std::filesystem::exists(path, none)) {
    TensorFile file = load_features(path, key);
    data.train.inputs = std::move(file.tensors.at("train"));
    data.test.inputs = std::move(file.tensors.at("test"));
    return "";
  }
  const NetworkInputs inputs(options);
  data.train.inputs = inputs(data.train.inputs);
  data.test.inputs = inputs(data.test.inputs);
  return key;
}

void save_inputs(const samples::Data& data, const std::string& computed, const std::string& path) {
  if (computed.empty()) return;
  save_safetensors(path,
                   {.tensors = {{"train", data.train.inputs}, {"test", data.test.inputs}},
                    .metadata = {{features_key, computed},
                                 {secret_key, "the features of private pictures reveal them"}}});
}

}  // namespace sotto::images
