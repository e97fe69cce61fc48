// Model files: weights, and the metadata from which a program makes the network again.
#pragma once

#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/safetensors.h"

namespace sotto::samples {

// Returns parse(). Turns its complaints about a file's contents into a SystemFailure: the path is
// not `what`.
template <class Parse>
auto parsed(const std::string& path, const char* what, const Parse& parse) {
  try {
    return parse();
  } catch (const std::invalid_argument& error) {
    throw SystemFailure(fmt::format("{}: not {}: {}", path, what, error.what()));
  } catch (const nlohmann::json::exception& error) {
    throw SystemFailure(fmt::format("{}: not {}: {}", path, what, error.what()));
  }
}

// Returns make(model), where `model` is the JSON in the file's metadata under the key. Throws
// SystemFailure, with the path, for a file that is no such model, and where `make` throws
// std::invalid_argument or an exception of JSON.
template <class Make>
auto load_model_file(const std::string& path, const char* key, const Make& make) {
  return parsed(path, "a model of this program", [&] {
    const TensorFile file = load_safetensors(path);
    const auto found = file.metadata.find(key);
    check(found != file.metadata.end(), "it has no {}", key);
    return make(nlohmann::json::parse(found->second));
  });
}

}  // namespace sotto::samples
