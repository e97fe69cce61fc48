// Models with the weights of files that other software wrote: by their config.json, or by the name
// of their architecture.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/models/pretrained_model.h"

namespace sotto::nn {

// How batch norms of a file are computed: their stored statistics as an affine map whose weight and
// bias are trained, that map as part of the convolution before it, or a group norm in their place.
enum class StoredNorms { frozen, folded, group };

struct PretrainedOptions {
  // The name for a file without config.json ("resnet50"), or of another head on the same body
  // ("BertForSequenceClassification").
  std::string architecture = {};
  // The head's number of classes; a head of another size is drawn anew. 0: that of the file.
  std::int64_t classes = 0;
  // Keeps weights in block formats (GGUF) as they are, frozen; else they are widened to f32.
  bool quantized = false;
  // The vector that the classifier of a text encoder takes: "mean" of the row's tokens, their mean
  // with trained weights, "attention", or empty for the architecture's own.
  std::string pooling = {};
  StoredNorms batch_norm = StoredNorms::frozen;  // of models with batch norms
  std::int64_t norm_groups = 0;                  // of group norms; 0: the architecture's own
  // The height and width of images: tables of positions are interpolated, and config.json tells it.
  // 0: those of the config.
  std::int64_t image_size = 0;
  // In the place of all the config's rates of dropout; unset: those.
  std::optional<double> dropout = {};
  // In the place of timm's drop_path_rate, of its vision transformers and of EfficientNet: the
  // rate of stochastic depth.
  std::optional<double> drop_path = {};
  // Only so many blocks, the first ones: a trunk for features. 0: all.
  std::int64_t blocks = 0;
  // Patterns of tensors of the file that are passed over: "*" is a number, "**" any text.
  std::vector<std::string> ignore = {};
};

// The use of each tensor, by its name in the file, with reasons in brackets.
struct LoadReport {
  std::string architecture = {};             // "gpt2"
  std::vector<std::string> loaded = {};      // read into the model
  std::vector<std::string> skipped = {};     // buffers of older versions, heads of other tasks
  std::vector<std::string> tied = {};        // uses that share another tensor
  std::vector<std::string> drawn_anew = {};  // heads, by the model's names
  std::vector<std::string> quantized = {};   // kept in their block format
  std::string to_text() const;               // in sentences, a line for each list that is not empty
};

// Where a tensor of the file is in the model.
struct StoredName {
  std::string file;                     // the name in the file, with its prefix
  std::vector<std::string> parameters;  // several if its rows are those of several
  bool transposed = false;              // the file holds [in, out]
};

// A model in evaluation's precision f32, on the CPU, every parameter trainable but quantised ones.
struct Pretrained {
  std::unique_ptr<PretrainedModel> model;  // with the file's values
  LoadReport report = {};                  // of what became of the file's tensors
  // Every tensor of the file that save_pretrained() writes, in the model's order; tied ones once.
  std::vector<StoredName> names = {};
  // The architecture's tables of names (nn/models/names.h), the first publisher's first.
  std::vector<std::string> tables = {};
  std::string config = {};  // config.json as it was read, with the changes that `options` made

  // The model as one of tokens. Throws std::invalid_argument for a model of images.
  TokenModel& tokens() const;
};

// Reads a folder (config.json, model.safetensors or shards with their index), or one file:
// safetensors, PyTorch's .pth and .bin, GGUF. Tensors in f32 share the mapped file until they are
// written to. Throws SystemFailure for files that cannot be read, and std::invalid_argument,
// naming the tensors, for those that are missing, left over or of another shape, and for options of
// a config that are not supported.
Pretrained load_pretrained(const std::string& path, const PretrainedOptions& options = {});

// Writes config.json and model.safetensors in the layout of the file that the model was loaded
// from: its names, orientation and tying, adapters merged, in f32. Both are written atomically.
// Throws SystemFailure when they cannot be written.
void save_pretrained(const Pretrained& pretrained, const std::string& folder);

}  // namespace sotto::nn
