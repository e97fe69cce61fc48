#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "samples/report/report.h"

namespace sotto {

namespace {

using nlohmann::json;

// JSON has neither NaN nor infinity.
json measured(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

// "mean_squared_error" for "mean squared error".
std::string key_of(std::string measure) {
  std::replace(measure.begin(), measure.end(), ' ', '_');
  return measure;
}

json to_json(const TrainingReport::Point& point, const std::string& measure) {
  return {{"step", point.step},
          {"loss", measured(point.loss)},
          {key_of(measure), measured(point.measure)},
          {"epsilon", measured(point.epsilon)},
          {"clipped_fraction", measured(point.clipped_fraction)}};
}

json to_json(const TrainingReport::Phase& phase) {
  return {
      {"name", phase.name}, {"seconds", measured(phase.seconds)}, {"peak_bytes", phase.peak_bytes}};
}

json to_json(const TrainingReport::WrongPicture& picture) {
  return {{"class", picture.label},
          {"predicted", picture.predicted},
          {"probability", measured(picture.probability)}};
}

json to_json(const TrainingReport::Communication& communication) {
  json places = json::array();
  for (const auto& place : communication.places) {
    places.push_back({{"name", place.name},
                      {"operations", place.operations},
                      {"bytes_sent", place.bytes_sent},
                      {"bytes_received", place.bytes_received},
                      {"seconds_waited", measured(place.seconds_waited)}});
  }
  return {{"ranks", communication.ranks}, {"lines", communication.lines}, {"places", places}};
}

template <class T>
json all(const std::vector<T>& values) {
  json list = json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

}  // namespace

json to_json(const TrainingReport::NormHistogram& norms) {
  return {{"step", norms.step},
          {"steps", norms.steps},
          {"edges", norms.edges},
          {"counts", norms.counts},
          {"below", norms.below},
          {"above", norms.above},
          {"clip_bound", measured(norms.clip_bound)},
          {"clipped_fraction", measured(norms.clipped_fraction)}};
}

json to_json(const TrainingReport& report) {
  json points = json::array();
  for (const TrainingReport::Point& point : report.points)
    points.push_back(to_json(point, report.measure));
  json settings = json::array();
  for (const auto& [name, value] : report.settings) {
    settings.push_back({{"name", name}, {"value", value}});
  }
  json results = json::object();
  for (const auto& [name, value] : report.results) results[name] = value;
  const Provenance& origin = report.provenance;
  return {{"title", report.title},
          {"provenance",
           {{"time", origin.time},
            {"sotto", origin.sotto},
            {"machine", origin.machine},
            {"command", origin.command}}},
          {"test_" + key_of(report.measure), measured(report.test_measure)},
          {"ordinary_" + key_of(report.measure), measured(report.ordinary_measure)},
          {"measured_on_private_data", report.measured_on_private_data},
          {"epochs", measured(report.epochs)},
          {"seconds", measured(report.seconds)},
          {"privacy", report.privacy ? json::parse(to_json(*report.privacy)) : json(nullptr)},
          {"no_privacy_reason", report.no_privacy_reason},
          {"not_private", not_private_numbers(report)},
          {"settings", settings},
          {"results", results},
          {"confusion", report.confusion ? json{{"classes", report.confusion->classes},
                                                {"counts", report.confusion->counts}}
                                         : json(nullptr)},
          {"wrong_pictures", all(report.wrong_pictures)},
          {"generated_text",
           report.generated_text.empty() ? json(nullptr) : json(report.generated_text)},
          {"points", points},
          {"norms", all(report.norms)},
          {"phases", all(report.phases)},
          {"communication", report.communication ? to_json(*report.communication) : json(nullptr)}};
}

}  // namespace sotto
