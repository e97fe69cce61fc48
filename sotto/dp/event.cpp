#include "sotto/dp/event.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "sotto/core/error.h"

namespace sotto {

namespace {

constexpr const char* mechanism_name = "gaussian";

const char* sampling_name(Sampling sampling) {
  return sampling == Sampling::poisson ? "poisson" : "full_batch";
}

double number(const nlohmann::json& object, const char* key) {
  const auto field = object.find(key);
  check(field != object.end() && field->is_number(), "event: {} is not a number", key);
  return field->get<double>();
}

std::string word(const nlohmann::json& object, const char* key) {
  const auto field = object.find(key);
  check(field != object.end() && field->is_string(), "event: {} is not a string", key);
  return field->get<std::string>();
}

}  // namespace

void check_event(const char* op, const Event& event) {
  check(std::isfinite(event.noise_multiplier) && event.noise_multiplier >= 0,
        "{}: noise multiplier {} is not a finite number >= 0", op, event.noise_multiplier);
  check(event.sampling_rate >= 0 && event.sampling_rate <= 1,
        "{}: sampling rate {} is not in [0, 1]", op, event.sampling_rate);
  check(event.sampling == Sampling::poisson || event.sampling_rate == 1,
        "{}: sampling rate {} of a full batch", op, event.sampling_rate);
}

std::string to_json(const Event& event) {
  const nlohmann::ordered_json object = {{"mechanism", mechanism_name},
                                         {"noise_multiplier", event.noise_multiplier},
                                         {"sampling", sampling_name(event.sampling)},
                                         {"sampling_rate", event.sampling_rate}};
  return object.dump();
}

Event event_from_json(const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  check(object.is_object() && object.size() == 4, "event: not an object of four fields: {}", text);
  check(word(object, "mechanism") == mechanism_name, "event: unknown mechanism: {}", text);
  const std::string sampling = word(object, "sampling");
  check(sampling == "poisson" || sampling == "full_batch", "event: unknown sampling: {}", sampling);
  const Event event{number(object, "noise_multiplier"),
                    sampling == "poisson" ? Sampling::poisson : Sampling::full_batch,
                    number(object, "sampling_rate")};
  check_event("event", event);
  return event;
}

}  // namespace sotto
