#include "core/io/strict_json.h"

#include <set>
#include <vector>

#include "core/error.h"
#include "core/io/utf8.h"

namespace sotto {

namespace {

using nlohmann::json;

// Scans a text before it is parsed. (The parser's own callback could do this, but takes quadratic
// time.)
class Guard : public json::json_sax_t {
 public:
  Guard(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& key) override {
    auto& keys = keys_.back();
    check(keys.insert(key).second, "{}: the key {} occurs twice", where_, excerpt(key));
    check(keys.size() <= limits_.max_entries, "{} has more than {} entries", where_,
          limits_.max_entries);
    return true;
  }
  // json::parse() reports the error with its position.
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;
  }

 private:
  bool enter() {
    keys_.emplace_back();
    check(keys_.size() <= limits_.depth, "{} is nested more than {} deep", where_, limits_.depth);
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  const std::string& where_;
  const JsonLimits& limits_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

json parse_json_object(std::string_view text, const std::string& where, const JsonLimits& limits) {
  // The parser would treat a zero byte as the end of its input.
  check(text.find('\0') == text.npos, "{} is not JSON: it holds a zero byte", where);
  try {
    Guard guard(where, limits);
    json::sax_parse(text, &guard, json::input_format_t::json, true, limits.comments);
    json object = json::parse(text, nullptr, true, limits.comments);
    check(object.is_object(), "{} is not a JSON object", where);
    return object;
  } catch (const json::exception& error) {
    constexpr std::size_t max = 300;  // bytes that the error quotes
    fail(fmt::format("{} is not JSON: {}", where, excerpt(error.what(), max)));
  }
}

bool nested_deeper(std::string_view text, std::size_t depth) {
  std::size_t open = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      at += c == '\\' ? 1 : 0;
      continue;
    }
    if ((c == '[' || c == '{') && ++open > depth) return true;
    if ((c == ']' || c == '}') && open > 0) --open;
  }
  return false;
}

}  // namespace sotto
