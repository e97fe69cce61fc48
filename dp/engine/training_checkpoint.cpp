#include "dp/engine/training_checkpoint.h"

#include "core/io/atomic_file.h"
#include "core/ranks/collectives.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/rank_sink.h"
#include "nn/state.h"

namespace sotto {

namespace {

using Tensors = std::map<std::string, Tensor>;

constexpr const char* mark_key = "sotto.ledger_mark";
constexpr const char* model_prefix = "model.";
constexpr const char* optimizer_prefix = "optimizer.";
constexpr const char* engine_prefix = "engine.";
constexpr const char* average_prefix = "moving_average.";

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

void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, const nn::MovingAverage* average) {
  const Tensors of_optimizer = optimizer.state(model.named_parameters());
  TensorFile file = engine.state();
  on_rank_0(*engine.ranks(), "save_checkpoint", [&] {
    file.metadata[mark_key] = to_json(engine.ledger().position());
    Tensors all;
    add(all, engine_prefix, file.tensors);
    add(all, model_prefix, nn::parameter_tensors(model));
    add(all, optimizer_prefix, of_optimizer);
    if (average != nullptr) add(all, average_prefix, average->state());
    file.tensors = std::move(all);
    save_safetensors(path, file);
  });
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

bool load_checkpoint(const std::string& path, nn::Module& model, nn::Optimizer& optimizer,
                     Engine& engine, nn::MovingAverage* average) {
  Ranks& ranks = *engine.ranks();
  const Loaded file = load(path, ranks);
  const auto set = [&](const Tensors& averages, const Tensors& of_optimizer,
                       const Tensors& values) {
    if (average != nullptr) average->load_state(averages);
    optimizer.load_state(of_optimizer, model.named_parameters());
    nn::set_parameters(model, values, path, nn::OtherTypes::refused);
  };
  const Tensors averages = with_prefix(file.all, average_prefix);
  on_all_ranks(ranks, "load_checkpoint: average", [&] {
    check(averages.empty() == (average == nullptr), "checkpoint: {} has {} moving average", path,
          averages.empty() ? "no" : "a");
  });
  const TensorFile before = engine.state();
  const Tensors old_optimizer = optimizer.state(model.named_parameters());
  const Tensors old_average = average == nullptr ? Tensors{} : average->state();
  const Tensors old_values = nn::parameter_tensors(model);
  const auto load_entries = [&] {
    on_all_ranks(ranks, "load_checkpoint: entries", [&] {
      set(averages, with_prefix(file.all, optimizer_prefix), with_prefix(file.all, model_prefix));
    });
  };
  const auto restore = [&] {
    set(old_average, nn::broadcast_tensors(ranks, old_optimizer), old_values);
    engine.load_state(before);
  };
  engine.load_state(file.of_engine);
  abort_on_error(ranks, load_entries, restore);
  return file.of_engine.verified;
}

}  // namespace sotto
