// Vectors of texts and pictures by a published model, as a table that sotto-tabular trains on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "nn/data/text/token_dataset.h"
#include "nn/models/pretrained.h"
#include "nn/models/text_encoder.h"
#include "samples/images/model_pictures.h"

namespace sotto::embed {

// A part of a text's vector: the mean over its tokens, or the values at one position.
struct TextPart {
  std::optional<std::int64_t> position = {};  // unset: the mean
  std::int64_t blocks = 0;                    // the model's first so many; 0: all
};
// "mean,1:4": the mean behind all blocks, and position 1 behind the fourth. Throws
// std::invalid_argument for other words.
std::vector<TextPart> text_parts(const std::string& words);
// That part of the rows' vectors [n, features], f32 on the CPU, of length 1; zeros where a text has
// no token at the position. The encoder must have the part's blocks alone.
Tensor text_vectors(nn::TextEncoder& encoder, const TextPart& part, const Dataset& rows);
// The parts side by side, over the root of their number: of length 1.
Tensor joined(const std::vector<Tensor>& parts);
// Those of pictures [n, c, h, w] in [0, 1].
Tensor picture_vectors(nn::ImageModel& model, const images::ModelPictures& inputs,
                       const Tensor& pictures);

// The names of the table's columns beside v1, v2, ... of the vectors.
inline constexpr const char* label_column = "label";
inline constexpr const char* user_column = "user";

// CSV: a line of names, then for each row its vector, the class of its label if there are classes,
// and its user if there are units.
std::string table(const Tensor& vectors, const TextRecords& records);
// The table's schema: numbers from -1 to 1, which is public as vectors have length 1; the classes
// must be public.
std::string schema(const Tensor& vectors, const TextRecords& records);

}  // namespace sotto::embed
