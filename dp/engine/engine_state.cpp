// Where private training stands, for a checkpoint.
#include <nlohmann/json.hpp>

#include "dp/engine/engine.h"

namespace sotto {

namespace {

using Json = nlohmann::json;

constexpr const char* key = "sotto.engine";
constexpr const char* rest_of_pass = "sampler.rest";
const std::string noise_prefix = "noise.";

template <class T>
T field(const Json& object, const char* name) {
  const auto found = object.find(name);
  check(found != object.end(), "engine state: no {}", name);
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    fail(fmt::format("engine state: {} is {}", name, found->dump()));
  }
}

Json to_json(const SamplerState& state) {
  return {{"event", Json::parse(sotto::to_json(state.event))},
          {"population", state.population},
          {"expected_size", state.expected_batch_size},
          {"secure", state.secure},
          {"place", state.index_in_epoch},
          {"pass", state.pass},
          {"number", state.number}};
}

SamplerState sampler_state(const Json& object, const TensorFile& file) {
  SamplerState state{.event = event_from_json(field<Json>(object, "event").dump()),
                     .population = field<std::int64_t>(object, "population"),
                     .expected_batch_size = field<double>(object, "expected_size"),
                     .secure = field<bool>(object, "secure"),
                     .index_in_epoch = field<std::int64_t>(object, "place"),
                     .pass = field<std::uint64_t>(object, "pass"),
                     .number = field<std::uint64_t>(object, "number"),
                     .rest = {}};
  const auto rest = file.tensors.find(rest_of_pass);
  if (rest == file.tensors.end()) return state;
  check(rest->second.dtype() == Dtype::i64, "engine state: {} is {}", rest_of_pass,
        name(rest->second.dtype()));
  state.rest = rest->second.to_vector<std::int64_t>();
  return state;
}

std::map<std::string, Tensor> noise_state(const TensorFile& file) {
  std::map<std::string, Tensor> state;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(noise_prefix)) state[name.substr(noise_prefix.size())] = tensor;
  }
  return state;
}

Json parsed(const TensorFile& file) {
  const auto entry = file.metadata.find(key);
  check(entry != file.metadata.end(), "engine state: the metadata has no {}", key);
  Json object = Json::parse(entry->second, nullptr, false);
  check(object.is_object(), "engine state: {} is not an object", key);
  return object;
}

}  // namespace

TensorFile Engine::state() const {
  const OneUser::Call call(user_, "Engine::state", OneUser::Access::reads);
  const SamplerState sampler = sampler_->state();
  TensorFile file;
  std::vector<double> bounds;
  for (const ClipGroup& group : clipper_.groups()) bounds.push_back(group.bound);
  file.metadata[key] = Json{{"steps_made", steps_made_},
                            {"noise_multiplier", first_noise_multiplier_},
                            {"bounds", bounds},
                            {"ledger", ledger_.id()},
                            {"run", ledger_.run_id()},
                            {"sampler", to_json(sampler)},
                            {"loss_scale", loss_scale_.value()},
                            {"good_steps", loss_scale_.good_steps()}}
                           .dump();
  file.metadata[secret_key] = "batches and noise that privacy rests on; publish the model alone";
  if (!sampler.rest.empty())
    file.tensors[rest_of_pass] = Tensor::from(sampler.rest, {std::ssize(sampler.rest)});
  if (const auto* const correlated = dynamic_cast<const CorrelatedMechanism*>(mechanism_.get())) {
    for (auto& [name, tensor] : correlated->state()) file.tensors[noise_prefix + name] = tensor;
  }
  return file;
}

void Engine::load_state(const TensorFile& file) {
  const OneUser::Call call(user_, "Engine::load_state", OneUser::Access::changes);
  const Json object = parsed(file);
  check(field<std::string>(object, "ledger") == ledger_.id() &&
            field<std::string>(object, "run") == ledger_.run_id(),
        "engine state: of another run than this ledger's");
  const auto steps = field<std::int64_t>(object, "steps_made");
  check(steps >= 0 && steps <= ledger_.run_releases(),
        "engine state: step {} with {} releases of this run in the ledger", steps,
        ledger_.run_releases());
  const auto noise = field<double>(object, "noise_multiplier");
  // It is more where other runs had spent something when this one began.
  check(noise == first_noise_multiplier_ ||
            (options_.target_epsilon && noise > first_noise_multiplier_),
        "engine state: the noise multiplier would be {:.6g} and was {:.6g}",
        first_noise_multiplier_, noise);
  const auto bounds = field<std::vector<double>>(object, "bounds");
  check(bounds.size() == clipper_.groups().size(), "engine state: {} clip bounds for {} groups",
        bounds.size(), clipper_.groups().size());
  LossScale scale = loss_scale_;
  if (options_.loss_scaling.adjust != LossScaling::Adjust::never && object.contains("loss_scale"))
    scale.resume(field<double>(object, "loss_scale"), field<std::int64_t>(object, "good_steps"));
  const SamplerState sampler = sampler_state(field<Json>(object, "sampler"), file);
  const bool goes_on = sampler.number == ledger_.next_draw();
  check(!options_.noise_strategy || goes_on,
        "engine state: the plan of correlated noise stood at draw {}, and the ledger has seen "
        "draws up to {}: a new plan must begin",
        sampler.number, ledger_.next_draw());
  const SamplerState before = sampler_->state();
  sampler_->load_state(sampler);
  const double noise_before = std::exchange(first_noise_multiplier_, noise);
  std::unique_ptr<Mechanism> mechanism_before;
  try {
    if (noise != noise_before) mechanism_before = std::exchange(mechanism_, make_mechanism());
    if (auto* const correlated = dynamic_cast<CorrelatedMechanism*>(mechanism_.get()))
      correlated->load_state(noise_state(file));
    clipper_.set_bounds(bounds);
    clipper_.set_loss_scale(scale.value());
  } catch (...) {
    first_noise_multiplier_ = noise_before;
    if (mechanism_before) mechanism_ = std::move(mechanism_before);
    sampler_->load_state(before);
    throw;
  }
  if (!goes_on) sampler_->resume_from(ledger_.next_draw());
  steps_made_ = steps;
  loss_scale_ = scale;
}

}  // namespace sotto
