#include "dp/engine/engine_state.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/strict_json.h"
#include "core/io/utf8.h"
#include "dp/event.h"

namespace sotto {

namespace {

using Json = nlohmann::json;

constexpr const char* key = "sotto.engine";
constexpr const char* rest_of_epoch = "sampler.rest";
const std::string noise_prefix = "noise.";

template <class T>
T field(const Json& object, const char* name) {
  const auto found = object.find(name);
  check(found != object.end(), "engine state: no {}", name);
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    fail(fmt::format("engine state: {} is {}", name, excerpt(found->dump())));
  }
}

Json to_json(const SamplerState& state) {
  return {{"event", Json::parse(sotto::to_json(state.event))},
          {"population", state.population},
          {"expected_size", state.expected_batch_size},
          {"secure", state.secure},
          {"place", state.index_in_epoch},
          {"pass", state.epoch_began},
          {"epoch", state.epoch_id},
          {"number", state.number}};
}

SamplerState sampler_state(const Json& object, const TensorFile& file) {
  SamplerState state{.event = event_from_json(field<Json>(object, "event").dump()),
                     .population = field<std::int64_t>(object, "population"),
                     .expected_batch_size = field<double>(object, "expected_size"),
                     .secure = field<bool>(object, "secure"),
                     .index_in_epoch = field<std::int64_t>(object, "place"),
                     .epoch_began = field<std::uint64_t>(object, "pass"),
                     .epoch_id = field<std::uint64_t>(object, "epoch"),
                     .number = field<std::uint64_t>(object, "number"),
                     .rest = {}};
  const auto rest = file.tensors.find(rest_of_epoch);
  if (rest == file.tensors.end()) return state;
  check(rest->second.dtype() == Dtype::i64, "engine state: {} is {}", rest_of_epoch,
        name(rest->second.dtype()));
  state.rest = rest->second.to_vector<std::int64_t>();
  return state;
}

std::map<std::string, Tensor> mechanism_state(const TensorFile& file) {
  std::map<std::string, Tensor> state;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(noise_prefix)) state[name.substr(noise_prefix.size())] = tensor;
  }
  return state;
}

Json parsed(const TensorFile& file) {
  const auto entry = file.metadata.find(key);
  check(entry != file.metadata.end(), "engine state: the metadata has no {}", key);
  constexpr std::size_t deepest = 8;
  check(!nested_deeper(entry->second, deepest), "engine state: {} is nested more than {} deep", key,
        deepest);
  Json object = Json::parse(entry->second, nullptr, false);
  check(object.is_object(), "engine state: {} is not an object", key);
  return object;
}

}  // namespace

TensorFile to_file(const EngineState& state) {
  TensorFile file;
  file.metadata[key] = Json{{"steps_made", state.steps_made},
                            {"noise_multiplier", state.noise_multiplier},
                            {"bounds", state.bounds},
                            {"ledger", state.ledger},
                            {"run", state.run},
                            {"means_released", state.means_released},
                            {"facts", state.facts},
                            {"data", state.data},
                            {"sampler", to_json(state.sampler)},
                            {"loss_scale", state.loss_scale.value},
                            {"good_steps", state.loss_scale.good_steps}}
                           .dump();
  file.metadata[secret_key] = "batches and noise that privacy rests on; publish the model alone";
  if (!state.sampler.rest.empty())
    file.tensors[rest_of_epoch] =
        Tensor::from(state.sampler.rest, {std::ssize(state.sampler.rest)});
  for (const auto& [name, tensor] : state.mechanism) file.tensors[noise_prefix + name] = tensor;
  return file;
}

EngineState engine_state(const TensorFile& file) {
  const Json object = parsed(file);
  return {.ledger = field<std::string>(object, "ledger"),
          .run = field<std::string>(object, "run"),
          .steps_made = field<std::int64_t>(object, "steps_made"),
          .noise_multiplier = field<double>(object, "noise_multiplier"),
          .bounds = field<std::vector<double>>(object, "bounds"),
          .loss_scale = {field<double>(object, "loss_scale"),
                         field<std::int64_t>(object, "good_steps")},
          .means_released = field<std::int64_t>(object, "means_released"),
          .facts = field<std::vector<Fact>>(object, "facts"),
          .data = field<std::vector<Fact>>(object, "data"),
          .sampler = sampler_state(field<Json>(object, "sampler"), file),
          .mechanism = mechanism_state(file)};
}

}  // namespace sotto
