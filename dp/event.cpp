#include "dp/event.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/strict_json.h"
#include "core/io/utf8.h"
#include "core/join.h"

namespace sotto {

namespace {

constexpr const char* mechanism_name = "gaussian";

// The name of each sampling, and which of the event's numbers it has.
struct Kind {
  Sampling sampling;
  const char* name;
  bool rate, by_epoch, truncation_probability;
};
constexpr std::array<Kind, 8> kinds = {{
    {Sampling::full_batch, "full_batch", false, false, false},
    {Sampling::poisson, "poisson", true, false, false},
    {Sampling::truncated_poisson, "truncated_poisson", true, false, true},
    {Sampling::fixed_size, "fixed_size", true, false, false},
    {Sampling::partition, "partition", false, true, false},
    {Sampling::balls_and_bins, "balls_and_bins", false, true, false},
    {Sampling::cyclic_poisson, "cyclic_poisson", true, true, false},
    {Sampling::planned, "planned", false, true, false},
}};

const Kind& kind_of(Sampling sampling) { return kinds.at(static_cast<std::size_t>(sampling)); }

// Reads the fields of an object, and checks that no field is unknown.
class Fields {
 public:
  explicit Fields(const nlohmann::json& object) : object_(object) {}

  double number(const char* key) {
    const auto& value = field(key);
    check(value.is_number(), "event: {} is not a number", key);
    return value.get<double>();
  }
  std::int64_t whole(const char* key) {
    const auto& value = field(key);
    check(value.is_number_integer(), "event: {} is not a whole number", key);
    return value.get<std::int64_t>();
  }
  bool truth(const char* key) {
    const auto& value = field(key);
    check(value.is_boolean(), "event: {} is not true or false", key);
    return value.get<bool>();
  }
  std::string word(const char* key) {
    const auto& value = field(key);
    check(value.is_string(), "event: {} is not a string", key);
    return value.get<std::string>();
  }
  void end() const {
    check(read_ == object_.size(), "event: {} fields, of which {} are known: {}", object_.size(),
          read_, excerpt(object_.dump()));
  }

 private:
  const nlohmann::json& field(const char* key) {
    const auto field = object_.find(key);
    check(field != object_.end(), "event: no {}", key);
    ++read_;
    return *field;
  }

  const nlohmann::json& object_;
  std::size_t read_ = 0;
};

}  // namespace

const char* name(Sampling sampling) { return kind_of(sampling).name; }

Sampling parse_sampling(const char* op, const std::string& name) {
  const auto known =
      std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.name == name; });
  check(known != kinds.end(), "{}: {} is not one of {}", op, excerpt(name),
        join(sampling_names(), ", "));
  return known->sampling;
}

std::vector<std::string> sampling_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds) names.emplace_back(kind.name);
  return names;
}

bool has_rate(Sampling sampling) { return kind_of(sampling).rate; }
bool in_epochs(Sampling sampling) { return kind_of(sampling).by_epoch; }

void check_event(const char* op, const Event& event) {
  const Kind& kind = kind_of(event.sampling);
  check(std::isfinite(event.noise_multiplier) && event.noise_multiplier >= 0,
        "{}: noise multiplier {} is not a finite number >= 0", op, event.noise_multiplier);
  check(event.sampling_rate >= 0 && event.sampling_rate <= 1,
        "{}: sampling rate {} is not in [0, 1]", op, event.sampling_rate);
  check(kind.rate || event.sampling_rate == 1,
        "{}: sampling rate {} of {} batches, which have none", op, event.sampling_rate, kind.name);
  check(event.batches >= 1 && (kind.by_epoch || event.batches == 1), "{}: epochs of {} {} batches",
        op, event.batches, kind.name);
  check(!event.paid || event.batches > 1, "{}: a {} batch already charged with its epoch", op,
        kind.name);
  check(event.truncation_probability >= 0 && event.truncation_probability <= 1 &&
            (kind.truncation_probability || event.truncation_probability == 0),
        "{}: {} batches with truncation probability {}", op, kind.name,
        event.truncation_probability);
}

std::string to_json(const Event& event) {
  const Kind& kind = kind_of(event.sampling);
  nlohmann::ordered_json object = {{"mechanism", mechanism_name},
                                   {"noise_multiplier", event.noise_multiplier},
                                   {"sampling", kind.name},
                                   {"sampling_rate", event.sampling_rate}};
  if (kind.by_epoch) {
    object["batches"] = event.batches;
    object["paid"] = event.paid;
  }
  if (kind.truncation_probability) object["cut"] = event.truncation_probability;
  return object.dump();
}

Event event_from_json(const std::string& text) {
  check(!nested_deeper(text, 1), "event: nested: {}", excerpt(text));
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  check(object.is_object(), "event: not an object: {}", excerpt(text));
  Fields fields(object);
  check(fields.word("mechanism") == mechanism_name, "event: unknown mechanism: {}", excerpt(text));
  Event event{.noise_multiplier = fields.number("noise_multiplier"),
              .sampling = parse_sampling("event: sampling", fields.word("sampling")),
              .sampling_rate = fields.number("sampling_rate")};
  const Kind& kind = kind_of(event.sampling);
  if (kind.by_epoch) {
    event.batches = fields.whole("batches");
    event.paid = fields.truth("paid");
  }
  if (kind.truncation_probability) event.truncation_probability = fields.number("cut");
  fields.end();
  check_event("event", event);
  return event;
}

}  // namespace sotto
