#include "nn/data/tokenizer/document.h"

#include <algorithm>
#include <limits>

#include "core/io/utf8.h"

namespace sotto {

namespace {

using nlohmann::json;

// The value in one short line, whatever bytes its strings hold.
std::string quoted(const json& value) {
  return excerpt(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

Field Field::operator[](const std::string& key) const {
  const std::optional<Field> found = find(key);
  expect(found.has_value(), "no field {}", excerpt(key));
  return *found;
}

std::optional<Field> Field::find(const std::string& key) const {
  expect(value_->is_object(), "not an object but {}", quoted(*value_));
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return Field(*found, where_ + (where_.ends_with(": ") ? "" : ".") + excerpt(key));
}

std::vector<Field> Field::list() const {
  expect(value_->is_array(), "not a list but {}", quoted(*value_));
  std::vector<Field> y;
  y.reserve(value_->size());
  for (const json& element : *value_)
    y.emplace_back(element, fmt::format("{}[{}]", where_, y.size()));
  return y;
}

std::string Field::text() const {
  expect(value_->is_string(), "not a string but {}", quoted(*value_));
  const auto& text = value_->get_ref<const std::string&>();
  expect(valid_utf8(text), "{} is not UTF-8", excerpt(text));
  return text;
}

std::int64_t Field::number() const {
  constexpr std::int64_t max = std::numeric_limits<std::int32_t>::max();
  const bool whole = value_->is_number_unsigned() ||
                     (value_->is_number_integer() && value_->get<std::int64_t>() >= 0);
  expect(whole && value_->get<std::uint64_t>() <= max, "not a whole number from 0 to {} but {}",
         max, quoted(*value_));
  return value_->get<std::int64_t>();
}

bool Field::flag(const std::string& key, bool otherwise) const {
  const std::optional<Field> found = find(key);
  if (!found) return otherwise;
  found->expect(found->value_->is_boolean(), "not true or false but {}", quoted(*found->value_));
  return found->value_->get<bool>();
}

std::string Field::text_or(const std::string& key, const std::string& otherwise) const {
  const std::optional<Field> found = find(key);
  return found ? found->text() : otherwise;
}

std::int64_t Field::number_or(const std::string& key, std::int64_t otherwise) const {
  const std::optional<Field> found = find(key);
  return found ? found->number() : otherwise;
}

void Field::only(std::initializer_list<const char*> keys) const {
  expect(value_->is_object(), "not an object but {}", quoted(*value_));
  for (const auto& [key, value] : value_->items()) {
    const bool known = key == "type" || std::find(keys.begin(), keys.end(), key) != keys.end();
    expect(known || value.is_null() || value == false, "{} is not supported: {}", excerpt(key),
           quoted(value));
  }
}

}  // namespace sotto
