#include "sotto/dp/checkpoint.h"

#include "sotto/nn/state.h"

namespace sotto {

namespace {

using Tensors = std::map<std::string, Tensor>;

constexpr const char* mark_key = "sotto.ledger_mark";
constexpr const char* model_prefix = "model.";
constexpr const char* optimizer_prefix = "optimizer.";
constexpr const char* engine_prefix = "engine.";

void add(Tensors& all, const char* prefix, const Tensors& part) {
  for (const auto& [name, tensor] : part) all[prefix + name] = tensor;
}

Tensors part(const Tensors& all, const std::string& prefix) {
  Tensors found;
  for (const auto& [name, tensor] : all) {
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = tensor;
  }
  return found;
}

}  // namespace

void save_checkpoint(const std::string& path, nn::Module& model, const nn::Optimizer& optimizer,
                     const Engine& engine, Ledger& ledger) {
  TensorFile file = engine.state();
  file.metadata[mark_key] = to_json(ledger.mark());
  Tensors all;
  add(all, engine_prefix, file.tensors);
  add(all, model_prefix, nn::parameter_tensors(model));
  add(all, optimizer_prefix, optimizer.state(model.named_parameters()));
  file.tensors = std::move(all);
  save_safetensors(path, file);
}

LedgerMark checkpoint_mark(const std::string& path) {
  const TensorFile file = load_safetensors(path);
  const auto mark = file.metadata.find(mark_key);
  check(mark != file.metadata.end(), "checkpoint: {} has no {}", path, mark_key);
  return ledger_mark_from_json(mark->second);
}

void load_checkpoint(const std::string& path, nn::Module& model, nn::Optimizer& optimizer,
                     Engine& engine) {
  TensorFile file = load_safetensors(path);
  const Tensors all = std::exchange(file.tensors, {});
  file.tensors = part(all, engine_prefix);
  const TensorFile before = engine.state();
  engine.load_state(file);
  const Tensors old_optimizer = optimizer.state(model.named_parameters());
  try {
    optimizer.load_state(part(all, optimizer_prefix), model.named_parameters());
    nn::set_parameters(model, part(all, model_prefix), path);
  } catch (...) {
    optimizer.load_state(old_optimizer, model.named_parameters());
    engine.load_state(before);
    throw;
  }
}

}  // namespace sotto
