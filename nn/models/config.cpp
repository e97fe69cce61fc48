#include "nn/models/config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/utf8.h"

namespace sotto::nn {

namespace {

constexpr std::int64_t max_size = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void refuse(const char* field, const nlohmann::json& value, const char* wanted) {
  fail(fmt::format("config: {} is {}, not {}", field, shown(value), wanted));
}

std::int64_t integer(const char* field, const nlohmann::json& value, std::int64_t least) {
  const char* wanted = least == 0 ? "a number from 0 to 2^31 - 1" : "a number from 1 to 2^31 - 1";
  if (!value.is_number()) refuse(field, value, wanted);
  const double number = value.get<double>();
  if (!(number >= static_cast<double>(least) && number <= static_cast<double>(max_size)) ||
      number != std::floor(number))
    refuse(field, value, wanted);
  return static_cast<std::int64_t>(number);
}

}  // namespace

std::string shown(const nlohmann::json& value) {
  constexpr std::size_t longest = 60;
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

const nlohmann::json* ConfigFields::find(const char* field) const {
  check(json_.is_object(), "config: it is {}, not an object", shown(json_));
  const auto at = json_.find(field);
  return at == json_.end() || at->is_null() ? nullptr : &*at;
}

bool ConfigFields::has(const char* field) const { return find(field) != nullptr; }

std::int64_t ConfigFields::size(const char* field, std::optional<std::int64_t> otherwise) const {
  const nlohmann::json* value = find(field);
  if (value) return integer(field, *value, 1);
  check(otherwise.has_value(), "config: {} is missing", field);
  return *otherwise;
}

Shape ConfigFields::pair(const char* field, std::int64_t otherwise) const {
  const nlohmann::json* value = find(field);
  if (!value || !value->is_array()) {
    const std::int64_t side = size(field, otherwise);
    return {side, side};
  }
  if (value->size() != 2) refuse(field, *value, "height and width");
  return {integer(field, value->at(0), 1), integer(field, value->at(1), 1)};
}

std::optional<std::int64_t> ConfigFields::index(const char* field) const {
  const nlohmann::json* value = find(field);
  return value ? std::optional(integer(field, *value, 0)) : std::nullopt;
}

double ConfigFields::number(const char* field, double otherwise) const {
  const nlohmann::json* value = find(field);
  if (!value) return otherwise;
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    refuse(field, *value, "a finite number");
  return value->get<double>();
}

double ConfigFields::positive(const char* field, double otherwise) const {
  const double value = number(field, otherwise);
  if (!(value > 0)) refuse(field, value, "a number above 0");
  return value;
}

double ConfigFields::rate(const char* field, double otherwise) const {
  const double value = number(field, otherwise);
  if (!(value >= 0 && value < 1)) refuse(field, value, "a rate in [0, 1)");
  return value;
}

bool ConfigFields::flag(const char* field, bool otherwise) const {
  const nlohmann::json* value = find(field);
  if (value && !value->is_boolean()) refuse(field, *value, "true or false");
  return value ? value->get<bool>() : otherwise;
}

std::string ConfigFields::text(const char* field, const std::string& otherwise) const {
  const nlohmann::json* value = find(field);
  if (value && !value->is_string()) refuse(field, *value, "a text");
  return value ? value->get<std::string>() : otherwise;
}

const nlohmann::json& ConfigFields::object(const char* field) const {
  static const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json* value = find(field);
  if (value && !value->is_object()) refuse(field, *value, "an object");
  return value ? *value : none;
}

std::string ConfigFields::architecture() const {
  const nlohmann::json* names = find("architectures");
  const bool named = names && names->is_array() && !names->empty() && names->front().is_string();
  return named ? names->front().get<std::string>() : text("architecture", "");
}

void ConfigFields::require(const char* field, const nlohmann::json& value) const {
  const nlohmann::json* at = find(field);
  check(!at || *at == value, "config: {} = {} is not supported, only {}", field,
        at ? shown(*at) : "", shown(value));
}

void ConfigFields::check_known(const char* object, const std::vector<std::string>& known,
                               const nlohmann::json& values) const {
  for (const auto& [name, value] : json_.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), name) != known.end()) continue;
    check(values.contains(name), "config: {} has {}, which is not supported", object,
          excerpt(name));
    require(name.c_str(), values[name]);
  }
}

void ConfigFields::check_divides(const char* size, std::int64_t of, const char* parts,
                                 std::int64_t count) const {
  check(of % count == 0, "config: {} {} is no multiple of {} {}", size, of, parts, count);
}

std::int64_t ConfigFields::classes() const {
  for (const char* field : {"num_labels", "num_classes"}) {
    if (has(field)) return size(field);
  }
  const nlohmann::json& names = object("id2label");
  return names.empty() ? 2 : static_cast<std::int64_t>(names.size());
}

}  // namespace sotto::nn
