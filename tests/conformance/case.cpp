#include "tests/conformance/case.h"

#include <array>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "core/io/safetensors.h"

namespace sotto::conformance {

namespace {

struct Role {
  const char* name;
  Dtype dtype;
};

constexpr std::array roles{Role{"input", Dtype::f32},    Role{"constant", Dtype::f32},
                           Role{"index", Dtype::i64},    Role{"param", Dtype::f32},
                           Role{"grad_out", Dtype::f32}, Role{"grad", Dtype::f32},
                           Role{"expect", Dtype::f64},   Role{"other", Dtype::f64}};

void check_role(const std::string& role, Dtype dtype) {
  for (const Role& known : roles) {
    if (role != known.name) continue;
    if (dtype != known.dtype) {
      throw Malformed(fmt::format("a tensor of role {} is {}", role, name(dtype)));
    }
    return;
  }
  throw Malformed("unknown role " + role);
}

Dtype described_dtype(const Json& entry) {
  const auto text = field<std::string>(entry, "dtype");
  if (text == "F32") return Dtype::f32;
  if (text == "F64") return Dtype::f64;
  if (text == "I64") return Dtype::i64;
  throw Malformed("unknown dtype " + text);
}

Tolerance read_tolerance(const Json& entry, const char* dtype) {
  const auto pair = field<std::vector<double>>(field<Json>(entry, "tol"), dtype);
  if (pair.size() != 2 || !(pair[0] >= 0) || !(pair[1] >= 0)) {
    throw Malformed("tol is not two numbers");
  }
  return {pair[0], pair[1]};
}

Described describe(const Json& entry, const TensorFile& file) {
  const auto name = field<std::string>(entry, "name");
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) throw Malformed("not in the tensor file");
  Described described{.value = found->second, .role = field<std::string>(entry, "role")};
  const Shape shape = shape_field(entry, "shape");
  const Dtype dtype = described_dtype(entry);
  check_role(described.role, dtype);
  if (shape != described.value.shape() || dtype != described.value.dtype()) {
    throw Malformed(fmt::format("described as {} {}, in the tensor file {} {}", sotto::name(dtype),
                                shape, sotto::name(described.value.dtype()),
                                described.value.shape()));
  }
  if (entry.contains("batch_dim") && !entry["batch_dim"].is_null()) {
    described.batch_dim = field<int>(entry, "batch_dim");
    if (*described.batch_dim < 0 || *described.batch_dim >= shape.rank()) {
      throw Malformed(fmt::format("batch_dim {} of shape {}", *described.batch_dim, shape));
    }
  }
  if (described.role == "expect") {
    described.f32 = read_tolerance(entry, "f32");
    described.f64 = read_tolerance(entry, "f64");
  }
  return described;
}

TensorFile read_tensors(const std::filesystem::path& path) {
  try {
    return load_safetensors(path.string());
  } catch (const std::exception& error) {
    throw Malformed(error.what());
  }
}

}  // namespace

const Described& Case::tensor(const std::string& tensor) const {
  const auto found = tensors.find(tensor);
  if (found == tensors.end()) throw Malformed("no tensor " + tensor);
  return found->second;
}

std::vector<std::string> Case::names_after(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const auto& [name, described] : tensors) {
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  return names;
}

Json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw Malformed("cannot be read");
  try {
    return Json::parse(file);
  } catch (const Json::exception& error) {
    throw Malformed(error.what());
  }
}

Case read_case(const std::filesystem::path& path) {
  Case c;
  c.folder = path.parent_path();
  c.body = read_json(path);
  if (field<int>(c.body, "format") != 1) throw Malformed("format is not 1");
  c.name = field<std::string>(c.body, "name");
  c.kind = field<std::string>(c.body, "kind");
  c.type = field<std::string>(c.body, "type");
  TensorFile file;
  if (c.body.contains("tensor_file")) {
    file = read_tensors(c.folder / field<std::string>(c.body, "tensor_file"));
  }
  if (!c.body.contains("tensors")) return c;
  for (const Json& entry : field<std::vector<Json>>(c.body, "tensors")) {
    const auto name = field<std::string>(entry, "name");
    try {
      if (!c.tensors.emplace(name, describe(entry, file)).second) throw Malformed("twice");
    } catch (const Malformed& error) {
      throw Malformed("tensor " + name + ": " + error.what());
    }
  }
  return c;
}

Shape shape_field(const Json& object, const std::string& name) {
  const auto list = field<std::vector<std::int64_t>>(object, name);
  if (list.size() > static_cast<std::size_t>(max_rank)) {
    throw Malformed(fmt::format("{}: {} entries", name, list.size()));
  }
  return Shape(std::span(list));
}

}  // namespace sotto::conformance
