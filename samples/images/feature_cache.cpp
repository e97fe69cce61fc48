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
std::string fingerprint(const samples::Data& data, const NetworkInputs& inputs) {
  const std::uint64_t train = xxh64(bytes_of(data.train.inputs));
  const std::uint64_t both = xxh64(bytes_of(data.test.inputs), train);
  return fmt::format("{} and {} pictures {:016x}, {}", data.train.size(), data.test.size(), both,
                     inputs.identity());
}

TensorFile load_features(const std::string& path, const samples::Data& data,
                         const std::string& wanted) {
  try {
    TensorFile file = load_safetensors(path);
    const auto found = file.metadata.find(features_key);
    check(found != file.metadata.end(), "it has no {}", features_key);
    check(found->second == wanted, "it has the features of other data: {}, not {}", found->second,
          wanted);
    const std::pair<const char*, const Dataset*> parts[] = {{"train", &data.train},
                                                            {"test", &data.test}};
    for (const auto& [name, part] : parts) {
      const auto tensor = file.tensors.find(name);
      check(tensor != file.tensors.end(), "it lacks the part {}", name);
      const Shape& shape = tensor->second.shape();
      check(shape.rank() > 1 && shape[0] == part->size(), "{} is {}, of {} pictures", name, shape,
            part->size());
    }
    return file;
  } catch (const std::invalid_argument& error) {
    throw SystemFailure(fmt::format("--cache: {}: {} (give another name)", path, error.what()));
  }
}

}  // namespace

std::string replace_by_inputs(samples::Data& data, const ImageNetworkOptions& options,
                              const std::string& path) {
  const NetworkInputs inputs(options);
  const std::string key = path.empty() ? "" : fingerprint(data, inputs);
  std::error_code none;
  if (!path.empty() && std::filesystem::exists(path, none)) {
    TensorFile file = load_features(path, data, key);
    data.train.inputs = std::move(file.tensors.at("train"));
    data.test.inputs = std::move(file.tensors.at("test"));
    return "";
  }
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
