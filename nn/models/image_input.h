// The pictures that a model of images was trained on: their size, and how their values are scaled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/models/pretrained.h"

namespace sotto::nn {

struct ImageInput {
  std::int64_t size = 224;  // height and width in pixels
  // For each channel of pictures in [0, 1]: the model takes (x - mean) / deviation.
  std::vector<double> mean = {}, deviation = {};
};

// The input of a model that load_pretrained() read from this path: by preprocessor_config.json in
// its folder, else by timm's pretrained_cfg in config.json, else what is usual for the
// architecture. Throws std::invalid_argument, with the field, for a value that is none.
ImageInput image_input(const std::string& path, const Pretrained& pretrained);

// Writes preprocessor_config.json into a folder, as image_input() and transformers read it.
void save_image_input(const ImageInput& input, const std::string& folder);

}  // namespace sotto::nn
