// Vectors of texts and pictures by a published model, as a table that sotto-tabular trains on.
#pragma once

#include <string>

#include "nn/data/text/token_dataset.h"
#include "nn/models/pretrained.h"
#include "nn/models/text_encoder.h"
#include "samples/images/model_pictures.h"

namespace sotto::embed {

// The vectors of the rows [n, width], f32 on the CPU, each of length 1.
Tensor text_vectors(nn::TextEncoder& encoder, const Dataset& rows);
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
