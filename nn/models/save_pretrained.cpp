#include <filesystem>

#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/frozen_norm.h"
#include "nn/models/load_weights.h"
#include "nn/models/lora_targets.h"
#include "nn/models/pretrained.h"

namespace sotto::nn {

namespace {

// All values of the model by the paths that they had when it was loaded.
std::map<std::string, Tensor> saved_values(Module& model) {
  std::map<std::string, Tensor> values = merged_tensors(model);
  for (const auto& [name, value] : statistics_of(model)) values[name] = *value;
  return values;
}

// The tensor of the file.
Tensor stored(const StoredName& name, const std::map<std::string, Tensor>& values) {
  std::vector<Tensor> rows;
  for (const std::string& parameter : name.parameters) {
    const auto at = values.find(parameter);
    check(at != values.end(), "save: the model has no {} for {}", parameter, name.file);
    rows.push_back(to_dtype(at->second, Dtype::f32));
  }
  const Tensor all = rows.size() == 1 ? rows[0] : concat(rows, 0);
  return name.transposed ? all.transpose(0, 1) : all;
}

}  // namespace

void save_pretrained(const Pretrained& pretrained, const std::string& folder) {
  const UnfoldedBatchNorms unfolded(*pretrained.model);
  const std::map<std::string, Tensor> values = saved_values(*pretrained.model);
  // The package refuses a file without it.
  TensorFile file{.metadata = {{"format", "pt"}}};
  std::size_t written = 0;
  for (const StoredName& name : pretrained.names) {
    file.tensors[name.file] = stored(name, values);
    written += name.parameters.size();
  }
  check(written == values.size(), "save: {} of the model's {} tensors have a name in its files",
        written, values.size());
  std::filesystem::create_directories(folder);
  save_safetensors((std::filesystem::path(folder) / "model.safetensors").string(), file);
  if (pretrained.config.empty()) return;
  write_file_atomically((std::filesystem::path(folder) / "config.json").string(),
                        [&](FileWriter& to) { to.write(pretrained.config); });
}

}  // namespace sotto::nn
