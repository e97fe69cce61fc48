#include "sotto/dp/ledger_contents.h"

#include <nlohmann/json.hpp>

#include "sotto/core/error.h"

namespace sotto {

namespace {

using Json = nlohmann::json;

std::uint64_t whole_number(const Json& object, const char* key, std::uint64_t low,
                           std::uint64_t high) {
  const auto field = object.find(key);
  check(field != object.end() && field->is_number_unsigned(), "{} is not a whole number", key);
  const auto value = field->get<std::uint64_t>();
  check(value >= low && value <= high, "{} {} is not in [{}, {}]", key, value, low, high);
  return value;
}

std::string text_field(const Json& object, const char* key) {
  const auto field = object.find(key);
  check(field != object.end() && field->is_string(), "{} is not a string", key);
  return field->get<std::string>();
}

// Takes the lines one by one.
class Reader {
 public:
  // Throws std::invalid_argument when the line does not follow those before it.
  void take(const std::string& line) {
    const Json object = Json::parse(line, nullptr, false);
    check(object.is_object(), "not an object");
    if (!started_) return take_header(object);
    if (object.contains("reserve")) return take_reservation(object);
    if (object.contains("settle")) return take_settlement(object);
    check(object.size() == 1, "unknown line");
    contents_.reasons.push_back(text_field(object, "not_private"));
  }

  bool started() const { return started_; }
  LedgerContents& contents() { return contents_; }

 private:
  void take_header(const Json& object) {
    check(object.contains("sotto_ledger"), "not a ledger");
    whole_number(object, "sotto_ledger", ledger_version, ledger_version);
    check(object.size() == 3, "{} fields instead of 3", object.size());
    contents_.header = {text_field(object, "unit"), text_field(object, "relation")};
    started_ = true;
  }

  void take_reservation(const Json& object) {
    check(object.size() == 3, "{} fields instead of 3", object.size());
    reserved_ = whole_number(object, "reserve", 1, largest_reservation);
    first_draw_ = whole_number(object, "first_draw", contents_.next_draw, end_of_draws - 1);
    check(object.contains("event"), "no event");
    contents_.count(event_from_json(object["event"].dump()), static_cast<std::int64_t>(reserved_));
    contents_.next_draw = first_draw_ + reserved_;
  }

  void take_settlement(const Json& object) {
    check(object.size() == 2, "{} fields instead of 2", object.size());
    check(reserved_ > 0, "settles no reservation");
    const std::uint64_t used = whole_number(object, "settle", 0, reserved_);
    contents_.next_draw =
        whole_number(object, "next_draw", first_draw_ + used, first_draw_ + reserved_);
    contents_.events.back().second -= static_cast<std::int64_t>(reserved_ - used);
    if (contents_.events.back().second == 0) contents_.events.pop_back();
    reserved_ = 0;
  }

  LedgerContents contents_;
  bool started_ = false;
  std::uint64_t reserved_ = 0, first_draw_ = 0;  // of the open reservation; 0 when there is none
};

// Whether `tail`, which has no newline, is the beginning of a line and not all of it: the only
// thing wrong with it is that it ends.
bool broke_off(const std::string& tail) {
  if (tail.empty()) return true;
  try {
    return Json::parse(tail).is_discarded();
  } catch (const Json::parse_error& error) {
    return tail.front() == '{' && error.byte > tail.size();
  } catch (const Json::out_of_range&) {  // a number beyond every type
    return false;
  }
}

}  // namespace

void LedgerContents::count(const Event& event, std::int64_t releases) {
  if (events.empty() || events.back().first != event) events.emplace_back(event, 0);
  events.back().second += releases;
}

LedgerText parse_ledger(const std::string& text, const std::string& path) {
  Reader reader;
  LedgerText result;
  int number = 1;
  try {
    for (; result.size < text.size() && !result.missing_newline; ++number) {
      const std::size_t end = text.find('\n', result.size);
      std::string line = text.substr(result.size, end - result.size);
      if (end == std::string::npos) {
        line.erase(line.find_last_not_of('\0') + 1);  // what a disk may hold for lost data
        if (broke_off(line)) break;
        result.missing_newline = true;
      }
      reader.take(line);
      result.size += line.size() + (result.missing_newline ? 0 : 1);
    }
    check(reader.started(), "no header; nothing was ever recorded here");
  } catch (const std::invalid_argument& error) {
    throw SystemFailure(fmt::format("ledger: {}:{}: {}", path, number, error.what()));
  }
  result.contents = std::move(reader.contents());
  return result;
}

}  // namespace sotto
