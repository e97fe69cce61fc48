// The published names of a model's modules and parameters, to which an adapter's keys refer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/models/names.h"

namespace sotto::nn {

// A parameter's other name: published, or in the model.
struct OtherName {
  std::string name;
  bool transposed = false;  // the published tensor is [in, out], the model's [out, in]
};

class AdapterNames {
 public:
  // Texts of names (names.h), the published layout first. Without one both names are the same.
  explicit AdapterNames(const std::vector<std::string>& tables);
  // The model's parameter for a published tensor, with the body's prefix or without, in any layout;
  // nullopt where no table names one, or it is a part of several.
  std::optional<OtherName> in_model(const std::string& published) const;
  // The published tensor for a parameter of the model, in the newest layout of the first publisher:
  // a program that reads an adapter looks for modules by the names that they have in it.
  std::optional<OtherName> published(const std::string& parameter) const;

 private:
  // The last table with the first one's prefix, if that has one.
  const NamesTable& newest() const;

  std::vector<NamesTable> tables_;
};

}  // namespace sotto::nn
