#include "dp/ledger/ledger_text.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/sha256.h"
#include "core/io/strict_json.h"
#include "core/io/utf8.h"

namespace sotto {

namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t id_digits = 32, checksum_digits = 64;

// Parses a number of the file: all fit std::int64_t.
std::uint64_t whole_number(const Json& object, const char* key) {
  const auto field = object.find(key);
  check(field != object.end() && field->is_number_unsigned(), "{} is not a whole number", key);
  const auto value = field->get<std::uint64_t>();
  check(value <= std::numeric_limits<std::int64_t>::max(), "{} {} is too large", key, value);
  return value;
}

std::string text_field(const Json& object, const char* key) {
  const auto field = object.find(key);
  check(field != object.end() && field->is_string(), "{} is not a string", key);
  return field->get<std::string>();
}

std::string id_field(const Json& object, const char* key) {
  std::string id = text_field(object, key);
  check(id.size() == id_digits && id.find_first_not_of("0123456789abcdef") == std::string::npos,
        "{} is not {} hexadecimal digits", key, id_digits);
  return id;
}

NeighboringRelation parse_relation(const std::string& text) {
  for (const NeighboringRelation relation :
       {NeighboringRelation::add_or_remove_one, NeighboringRelation::replace_one}) {
    if (text == relation_text(relation)) return relation;
  }
  fail("unknown relation: " + excerpt(text));
}

void check_fields(const Json& object, std::size_t fields) {
  check(object.size() == fields, "{} fields instead of {}", object.size(), fields);
}

void take_header(LedgerContents& contents, const Json& object) {
  check(object.contains("sotto_ledger"), "not a ledger");
  const std::uint64_t version = whole_number(object, "sotto_ledger");
  check(version >= oldest_ledger_version && version <= ledger_version,
        "version {} of the format, where {} to {} are known", version, oldest_ledger_version,
        ledger_version);
  check_fields(object, 5);
  contents.id = id_field(object, "id");
  contents.header = {text_field(object, "unit"), parse_relation(text_field(object, "relation"))};
}

EventCounts plan_of(const Json& plan) {
  check(plan.is_array() && !plan.empty(), "plan is no list of releases");
  EventCounts max;
  for (const Json& entry : plan) {
    check(entry.is_object(), "plan is no list of releases");
    check_fields(entry, 2);
    check(entry.contains("event"), "no event");
    const auto count = static_cast<std::int64_t>(whole_number(entry, "most"));
    check(count >= 1, "a plan of {} releases", count);
    add_releases(max, event_from_json(entry["event"].dump()), count);
  }
  return max;
}

// Numbers that read back to the same bits.
TruncatedNegativeBinomial runs_of(const Json& selection) {
  check(selection.is_object(), "selection is no number of runs");
  check_fields(selection, 2);
  const auto number = [&](const char* key) {
    const auto field = selection.find(key);
    check(field != selection.end() && field->is_number(), "{} is not a number", key);
    return field->get<double>();
  };
  return {.eta = number("eta"), .gamma = number("gamma")};
}

void take_run_line(LedgerContents& contents, const std::string& id, const Json& object) {
  LedgerRun& run = contents.run(id);
  if (object.contains("reserve")) {
    const bool has_id = object.contains("epoch");
    check_fields(object, has_id ? 6 : 5);
    check(object.contains("event"), "no event");
    run.reserve({.event = event_from_json(object["event"].dump()),
                 .count = static_cast<std::int64_t>(whole_number(object, "reserve")),
                 .first_draw = whole_number(object, "first_draw"),
                 .epoch_id = has_id ? whole_number(object, "epoch") : 0});
  } else if (object.contains("settle")) {
    check_fields(object, 4);
    run.settle(static_cast<std::int64_t>(whole_number(object, "settle")),
               whole_number(object, "next_draw"));
  } else if (object.contains("population")) {
    check_fields(object, 3);
    contents.set_population(static_cast<std::int64_t>(whole_number(object, "population")));
  } else if (object.contains("selection")) {
    check_fields(object, 4);
    check(object.contains("plan"), "no plan");
    contents.set_selection(run, {runs_of(object["selection"]), plan_of(object["plan"])});
  } else if (object.contains("plan")) {
    check_fields(object, 3);
    contents.set_plan(run, plan_of(object["plan"]));
  } else {
    check_fields(object, 3);
    contents.reasons.push_back(text_field(object, "not_private"));
  }
}

std::string checksum_after(const std::string& before, const std::string& body) {
  return sha256(before + body);
}

// A line without its end.
std::string body_of(const std::string& line) {
  const std::size_t end = line_end(std::string(checksum_digits, '0')).size();
  return line.substr(0, line.size() - std::min(end, line.size()));
}

// Appends a line without its newline. Throws std::invalid_argument when it does not follow the
// lines before it.
void take(LedgerText& text, const std::string& line) {
  constexpr std::size_t deepest = 4;  // a line, its plan, an entry, the entry's event
  check(!nested_deeper(line, deepest), "nested more than {} deep", deepest);
  const Json object = Json::parse(line, nullptr, false);
  check(object.is_object(), "not an object");
  const std::string body = body_of(line);
  if (text.lines == 0) check(object.contains("sotto_ledger"), "not a ledger");
  const std::string checksum = checksum_after(text.checksum, body);
  check(line == body + line_end(checksum),
        "the checksum does not fit: this line was edited, or lines before it were added, removed "
        "or moved");
  if (text.lines == 0) {
    take_header(text.contents, object);
  } else {
    text.run = id_field(object, "run");
    take_run_line(text.contents, text.run, object);
  }
  text.checksum = checksum;
}

// Returns whether `tail`, which has no newline, is an incomplete line: its only fault is that it
// ends.
bool broke_off(const std::string& tail) {
  if (tail.empty()) return true;
  try {
    return Json::parse(tail).is_discarded();
  } catch (const Json::parse_error& error) {
    return tail.front() == '{' && error.byte > tail.size();
  } catch (const Json::out_of_range&) {  // a number out of range for every type
    return false;
  }
}

std::string dump(const OrderedJson& object) {
  return object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

const char* relation_text(NeighboringRelation relation) {
  return relation == NeighboringRelation::add_or_remove_one ? "add or remove one" : "replace one";
}

std::string read_right_lines(LedgerText& text, const std::string& more) {
  try {
    for (std::size_t at = 0; at < more.size() && !text.missing_newline;) {
      const std::size_t end = more.find('\n', at);
      std::string line = more.substr(at, end - at);
      if (end == std::string::npos) {
        line.erase(line.find_last_not_of('\0') + 1);  // zeros may stand for data that the disk lost
        if (broke_off(line)) break;
      }
      take(text, line);
      text.missing_newline = end == std::string::npos;
      at += line.size() + 1;
      text.size += line.size() + 1;
      ++text.lines;
    }
    check(text.lines > 0, "no header; nothing was ever recorded here");
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

void read_ledger(LedgerText& text, const std::string& more, const std::string& path) {
  const std::string wrong = read_right_lines(text, more);
  if (!wrong.empty())
    throw SystemFailure(fmt::format("ledger: {}:{}: {}", path, text.lines + 1, wrong));
}

LedgerText parse_ledger(const std::string& text, const std::string& path) {
  LedgerText read;
  read_ledger(read, text, path);
  return read;
}

std::string header_line(const LedgerContents& contents) {
  return dump({{"sotto_ledger", ledger_version},
               {"id", contents.id},
               {"unit", contents.header.unit},
               {"relation", relation_text(contents.header.relation)}});
}

std::string reservation_line(const LedgerRun& run, const Reservation& reservation) {
  OrderedJson line = {{"run", run.id},
                      {"reserve", reservation.count},
                      {"first_draw", reservation.first_draw},
                      {"event", OrderedJson::parse(to_json(reservation.event))}};
  if (reservation.epoch_id != 0) line["epoch"] = reservation.epoch_id;
  return dump(line);
}

std::string settlement_line(const LedgerRun& run, std::int64_t used, std::uint64_t next_draw) {
  return dump({{"run", run.id}, {"settle", used}, {"next_draw", next_draw}});
}

std::string population_line(const LedgerRun& run, std::int64_t units) {
  return dump({{"run", run.id}, {"population", units}});
}

namespace {

OrderedJson plan_json(const EventCounts& max) {
  OrderedJson plan = OrderedJson::array();
  for (const auto& [event, count] : max)
    plan.push_back({{"most", count}, {"event", OrderedJson::parse(to_json(event))}});
  return plan;
}

}  // namespace

std::string plan_line(const LedgerRun& run, const EventCounts& max) {
  return dump({{"run", run.id}, {"plan", plan_json(max)}});
}

std::string selection_line(const LedgerRun& run, const PrivateSelection& selection) {
  return dump({{"run", run.id},
               {"selection", {{"eta", selection.runs.eta}, {"gamma", selection.runs.gamma}}},
               {"plan", plan_json(selection.run)}});
}

std::string not_private_line(const LedgerRun& run, const std::string& reason) {
  return dump({{"run", run.id}, {"not_private", reason}});
}

std::string line_end(const std::string& checksum) { return ",\"chain\":\"" + checksum + "\"}"; }

std::string stated_checksum(const std::string& line) {
  const std::string end = line.substr(body_of(line).size());
  const std::size_t quote = line_end("").find("\"}");
  const std::string checksum = end.substr(std::min(quote, end.size()), checksum_digits);
  return end == line_end(checksum) ? checksum : "";
}

bool follows(const std::string& before, const std::string& line) {
  const std::string body = body_of(line);
  return line.substr(body.size()) == line_end(checksum_after(before, body));
}

std::string add_line(LedgerText& text, const std::string& line) {
  const std::string body = line.substr(0, line.size() - 1);  // all but the last brace
  text.checksum = checksum_after(text.checksum, body);
  std::string whole = body + line_end(text.checksum) + "\n";
  text.size += whole.size();
  ++text.lines;
  return whole;
}

}  // namespace sotto
