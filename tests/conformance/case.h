// Conformance cases: numbers in, numbers out. A case is a JSON file that describes a computation,
// with the tensors in a file beside it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/tensor.h"

namespace sotto::conformance {

using Json = nlohmann::json;

// A case that violates the format.
class Malformed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An entry of the vocabulary that the library does not support; the text names it.
class Skip : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// |got - expected| <= absolute + relative |expected|
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

struct Described {
  Tensor value;
  std::string role;
  std::optional<int> batch_dim;
  Tolerance f32, f64;  // of expected tensors
};

struct Case {
  std::string name, kind, type;
  std::filesystem::path folder;  // of the case's file
  Json body;
  std::map<std::string, Described> tensors;

  bool has(const std::string& tensor) const { return tensors.count(tensor) > 0; }
  // Throws Malformed when it is missing.
  const Described& tensor(const std::string& tensor) const;
  // The names of tensors that begin with `prefix`, without it.
  std::vector<std::string> names_after(const std::string& prefix) const;
};

// Throws Malformed, without the file's name.
Json read_json(const std::filesystem::path& path);
Case read_case(const std::filesystem::path& path);

// The field of an object, as T. Throws Malformed, with the field's name, when it is missing or of
// another type.
template <class T>
T field(const Json& object, const std::string& name) {
  if (!object.is_object() || !object.contains(name)) throw Malformed("no field " + name);
  try {
    return object.at(name).get<T>();
  } catch (const Json::exception& error) {
    throw Malformed("field " + name + ": " + error.what());
  }
}

// A list of integers as a Shape; throws Malformed when it is too long.
Shape shape_field(const Json& object, const std::string& name);

}  // namespace sotto::conformance
