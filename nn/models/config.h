// The fields of a model's config.json, each with its default; null is as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/shape.h"

namespace sotto::nn {

// A value as a message shows it: not longer than a line.
std::string shown(const nlohmann::json& value);

// All throw std::invalid_argument with the field and its value for one of another kind.
class ConfigFields {
 public:
  // `json` must outlive the fields.
  explicit ConfigFields(const nlohmann::json& json) : json_(json) {}

  // A size, 1 .. 2^31 - 1. Without a default the field must be there.
  std::int64_t size(const char* field, std::optional<std::int64_t> otherwise = {}) const;
  // Height and width: a list of both, or one size for both.
  Shape pair(const char* field, std::int64_t otherwise) const;
  // A count or an id, 0 .. 2^31 - 1; nullopt if absent.
  std::optional<std::int64_t> index(const char* field) const;
  double number(const char* field, double otherwise) const;    // finite
  double positive(const char* field, double otherwise) const;  // finite, > 0: an epsilon, a base
  double rate(const char* field, double otherwise) const;      // of dropout, in [0, 1)
  bool flag(const char* field, bool otherwise) const;
  std::string text(const char* field, const std::string& otherwise) const;
  // The object in this field; an empty one if absent.
  const nlohmann::json& object(const char* field) const;
  bool has(const char* field) const;  // there, and not null

  // The first entry of `architectures`, which PretrainedOptions::architecture stands in; else
  // timm's `architecture`; empty if there is neither.
  std::string architecture() const;

  // Throws, naming the field and its value, if it is there and another than the value.
  void require(const char* field, const nlohmann::json& value) const;
  // Throws, naming it in `object`, for a field that is none of `known` and not null, and has not
  // the value that `values` gives: an object of such fields.
  void check_known(const char* object, const std::vector<std::string>& known,
                   const nlohmann::json& values) const;
  // Throws unless `parts` divides `size`, naming both.
  void check_divides(const char* size, std::int64_t of, const char* parts,
                     std::int64_t count) const;
  // num_labels, else timm's num_classes, else the number of entries of id2label, else 2.
  std::int64_t classes() const;

 private:
  const nlohmann::json* find(const char* field) const;

  const nlohmann::json& json_;
};

}  // namespace sotto::nn
