// Adapters in the files of PEFT, which Python's transformers loads: adapter_config.json and
// adapter_model.safetensors, with LoRA beside named layers and modules that are stored whole.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/models/pretrained.h"
#include "nn/models/tuning.h"

namespace sotto::nn {

// Where a tensor of an adapter's file is in the model.
struct AdapterTensor {
  Parameter* parameter = nullptr;  // not owned; its elements are in the file's order ...
  bool transposed = false;         // ... or the file holds [in, out], and the model [out, in]
};

struct AdapterReport {
  std::map<std::string, AdapterTensor> tensors = {};  // by their names in the file
  TuningSummary summary = {};                         // of what is trained now
};

// Puts the folder's LoRA into the model, and trains from then on the tensors of its file alone, but
// for the weight of an adapted layer. The keys of the file say which layers are adapted; the config
// says the scale. Throws SystemFailure for files that cannot be read, and std::invalid_argument,
// naming the field or the tensor, for those that are malformed or do not fit the model, for a model
// that has LoRA already, and for fields of other methods, such as "use_dora".
AdapterReport load_adapter(Pretrained& pretrained, const std::string& folder);

struct AdapterOptions {
  std::string base_model = {};  // the checkpoint's name or folder, as a note
  // PEFT's kind of task, by default "SEQ_CLS" or "CAUSAL_LM" for a model of tokens with a head of
  // its own or without, and none for a model of images.
  std::string task_type = {};
};

// Writes LoRA, and the modules that are trained whole, by the published names, the newest where
// they changed (ViT's between transformers 4 and 5); load_adapter() reads both. Both files are
// written atomically, the tensors first. Throws std::invalid_argument for a model without LoRA and
// for trained parameters that an adapter cannot hold, and SystemFailure when the folder cannot be
// written.
void save_adapter(Pretrained& pretrained, const std::string& folder,
                  const AdapterOptions& options = {});

// The same for any module. `tables` are texts of names (nn/models/names.h), the published layout
// first; without one the names are the module's own. `head`: the modules that are stored whole.
struct PublishedModel {
  Module& model;                         // outlives it
  std::vector<std::string> tables = {};  // of names
  std::vector<std::string> head = {};    // paths of modules that are stored whole
};
AdapterReport load_adapter(const PublishedModel& model, const std::string& folder);
void save_adapter(const PublishedModel& model, const std::string& folder,
                  const AdapterOptions& options = {});

}  // namespace sotto::nn
