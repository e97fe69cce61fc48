#include "dp/engine/training_checkpoint.h"

#include "core/io/atomic_file.h"
#include "core/ranks/collectives.h"
#include "dp/engine/checkpoint_parts.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/rank_sink.h"
#include "nn/state.h"

namespace sotto {

namespace {

using Tensors = std::map<std::string, Tensor>;

constexpr const char* model_prefix = "model.";
constexpr const char* optimizer_prefix = "optimizer.";
constexpr const char* engine_prefix = "engine.";
constexpr const char* average_prefix = "moving_average.";
constexpr const char* learner_prefix = "learner.";

void add(Tensors& all, const char* prefix, const Tensors& tensors) {
  for (const auto& [name, tensor] : tensors) all[prefix + name] = tensor;
}

Tensors with_prefix(const Tensors& all, const std::string& prefix) {
  Tensors found;
  for (const auto& [name, tensor] : all) {
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = tensor;
  }
  return found;
}

}  // namespace

TensorFile checkpoint_file(TensorFile of_steps, nn::Module& model, const nn::Optimizer& optimizer,
                           const nn::MovingAverage* average, const Learner* learner) {
  Tensors all;
  add(all, engine_prefix, of_steps.tensors);
  add(all, model_prefix, nn::parameter_tensors(model));
  add(all, optimizer_prefix, optimizer.state(model.named_parameters()));
  if (average != nullptr) add(all, average_prefix, average->state());
  if (learner != nullptr) add(all, learner_prefix, learner->state());
  of_steps.tensors = std::move(all);
  return of_steps;
}

namespace {

// The engine's state, with the ledger's position.
TensorFile marked_state(const Engine& engine) {
  TensorFile file = engine.state();
  on_rank_0(*engine.ranks(), "save_checkpoint",
            [&] { file.metadata[mark_key] = to_json(engine.ledger().position()); });
  return file;
}

}  // namespace

CheckpointedSteps checkpointed(Engine& engine) {
  return {engine.ranks(), [&] { return marked_state(engine); },
          [&](const TensorFile& file) { engine.load_state(file); }};
}

void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, const nn::MovingAverage* average,
                     const Learner* learner) {
  const TensorFile file = checkpoint_file(marked_state(engine), model, optimizer, average, learner);
  on_rank_0(*engine.ranks(), "save_checkpoint", [&] { save_safetensors(path, file); });
}

void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, const Ledger& ledger, const nn::MovingAverage* average) {
  const Ledger own = engine.ledger();
  check(own.id() == ledger.id() && own.run_id() == ledger.run_id(),
        "checkpoint: the ledger is another than the engine's");
  save_checkpoint(path, model, optimizer, engine, average);
}

void save_model(const std::string& path, nn::Module& model, const PrivacyStatement& statement) {
  nn::save_module(path, model, {{statement_key, to_json(statement)}});
}

std::optional<std::string> checkpoint_program(const std::string& path) {
  const TensorFile file = load_safetensors(path);
  const auto program = file.metadata.find(program_key);
  if (program == file.metadata.end()) return std::nullopt;
  return program->second;
}

LedgerPosition checkpoint_mark(const std::string& path) {
  const TensorFile file = load_safetensors(path);
  const auto mark = file.metadata.find(mark_key);
  check(mark != file.metadata.end(), "checkpoint: {} has no {}", path, mark_key);
  return ledger_position_from_json(mark->second);
}

namespace {

// The file's content on every rank, but the engine's entries, which are secret, on rank 0 alone.
struct Loaded {
  Tensors all;
  TensorFile of_engine;  // with the file's metadata
};

Loaded load(const std::string& path, Ranks& ranks) {
  Loaded loaded;
  Tensors here;
  on_rank_0(ranks, "load_checkpoint", [&] {
    remove_leftovers(path);
    TensorFile& file = loaded.of_engine = load_safetensors(path);
    here = std::exchange(file.tensors, with_prefix(file.tensors, engine_prefix));
    std::erase_if(here, [](const auto& entry) { return entry.first.starts_with(engine_prefix); });
  });
  loaded.all = nn::broadcast_tensors(ranks, here);
  loaded.of_engine.verified =
      broadcast(ranks, "load_checkpoint: verified", [&] { return loaded.of_engine.verified; });
  return loaded;
}

}  // namespace

bool load_checkpoint(const std::string& path, const CheckpointedSteps& steps, nn::Module& model,
                     nn::Optimizer& optimizer, nn::MovingAverage* average, Learner* learner) {
  Ranks& ranks = *steps.ranks;
  const Loaded file = load(path, ranks);
  const auto set = [&](const Tensors& averages, const Tensors& learned, const Tensors& of_optimizer,
                       const Tensors& values) {
    if (average != nullptr) average->load_state(averages);
    optimizer.load_state(of_optimizer, model.named_parameters());
    nn::set_parameters(model, values, path, nn::OtherTypes::refused);
    if (learner != nullptr) learner->load_state(learned);  // last: it may look at the others
  };
  const Tensors averages = with_prefix(file.all, average_prefix);
  const Tensors learned = with_prefix(file.all, learner_prefix);
  on_all_ranks(ranks, "load_checkpoint: average", [&] {
    check(averages.empty() == (average == nullptr), "checkpoint: {} has {} moving average", path,
          averages.empty() ? "no" : "a");
    check(learned.empty() || learner != nullptr, "checkpoint: {} has the state of a learner", path);
  });
  const TensorFile before = steps.state();
  const Tensors old_optimizer = optimizer.state(model.named_parameters());
  const Tensors old_average = average == nullptr ? Tensors{} : average->state();
  const Tensors old_learned = learner == nullptr ? Tensors{} : learner->state();
  const Tensors old_values = nn::parameter_tensors(model);
  const auto load_entries = [&] {
    on_all_ranks(ranks, "load_checkpoint: entries", [&] {
      set(averages, learned, with_prefix(file.all, optimizer_prefix),
          with_prefix(file.all, model_prefix));
    });
  };
  const auto restore = [&] {
    abort_on_error(ranks, [&] {
      set(old_average, old_learned, nn::broadcast_tensors(ranks, old_optimizer), old_values);
    });
    steps.load_state(before);
  };
  steps.load_state(file.of_engine);
  abort_on_error(ranks, load_entries, restore);
  return file.of_engine.verified;
}

bool load_checkpoint(const std::string& path, nn::Module& model, nn::Optimizer& optimizer,
                     Engine& engine, nn::MovingAverage* average, Learner* learner) {
  return load_checkpoint(path, checkpointed(engine), model, optimizer, average, learner);
}

}  // namespace sotto
