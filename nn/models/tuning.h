// Fine-tuning: the parts of a model that are trained, by name.
#pragma once

#include <string>
#include <vector>

#include "nn/models/lora_targets.h"
#include "nn/models/pretrained_model.h"

namespace sotto::nn {

// The parts that are trained. The head (ModelParts) is trained by every tuning. Statistics of
// batches, "running_mean" and "running_var", and the columns' of Standardize stay frozen.
struct Tuning {
  enum class Kind {
    all,     // everything
    head,    // the head alone
    bitfit,  // every bias (Zaken et al. 2022; Bu et al. 2024)
    norms,   // scale and shift of normalisation
    last,    // the last blocks, and everything behind the blocks
    lora,    // low-rank products beside the layers that `targets` fits
  };
  Kind kind = Kind::all;  // what is trained
  // The number of last blocks that bitfit, norms, last and lora train, with all behind the blocks.
  // 0 is every block; Kind::last does not take it.
  std::int64_t blocks = 0;
  LoraOptions lora = {};         // of Kind::lora
  std::string targets = {};      // a regular expression, default_lora_targets if empty
  bool train_embeddings = true;  // false: tables stay frozen whatever the kind
};

// The projections to queries and values of the models here; "qkv" is all three of a joint one.
inline constexpr const char* default_lora_targets =
    "query|value|q_proj|v_proj|q_lin|v_lin|c_attn|qkv";
// Stands, as a target, for every linear layer of the blocks, or of a model without blocks.
inline constexpr const char* all_lora_targets = "all-linear";

// For help texts.
inline constexpr const char* tuning_texts =
    "all, head, bitfit, norms, last:BLOCKS or lora:RANK; behind bitfit, norms and lora, "
    "last:BLOCKS; behind lora, alpha=A, targets=PATTERN, rslora and dropout=P; behind any, "
    "embeddings=frozen; all separated by commas";

// "lora:8,alpha=16,targets=query|value,rslora,dropout=0.1", "norms,last:2",
// "all,embeddings=frozen": see tuning_texts. Alpha is twice the rank unless given. Throws
// std::invalid_argument, naming the word, for any other text.
Tuning parse_tuning(const std::string& text);

// Numbers of weights, and their bytes.
struct TuningSummary {
  std::int64_t trained = 0;                     // weights
  std::int64_t frozen = 0;                      // weights
  std::size_t trained_bytes = 0;                // of memory
  std::size_t frozen_bytes = 0;                 // of memory
  std::vector<std::string> trained_names = {};  // of parameters
  std::vector<std::string> adapted = {};        // paths of the layers with LoRA
};

// Adapts layers and freezes what is not trained, whatever was trained before; layers that have LoRA
// keep it. Make optimizers and clip groups afterwards. Throws std::invalid_argument, and lists what
// there is, for targets that fit no layer, a head that is to be trained and is not there, and more
// blocks than there are.
TuningSummary apply_tuning(PretrainedModel& model, const Tuning& tuning);
// The same for any module, whose parts the caller names.
TuningSummary apply_tuning(Module& model, const ModelParts& parts, const Tuning& tuning);
// The present state of training.
TuningSummary summary_of_tuning(Module& model);

// The number of the first block with a trained parameter: all before it is frozen. 0 where
// something in front of the blocks is trained; the number of blocks where nothing but what lies
// behind them is.
std::int64_t first_trained_block(PretrainedModel& model);

// Trains the parameters whose path, or an ending of it behind a dot, fits the regular expression,
// and freezes the others: "bias|head\\..*". Throws std::invalid_argument, and lists what there is,
// for one that fits no parameter.
TuningSummary train_only(Module& model, const std::string& pattern);

}  // namespace sotto::nn
