// Models of pictures in files, and their outputs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "samples/images/image_network.h"
#include "samples/pretrained/export.h"

namespace sotto::images {

// The metadata of a model file, from which load_model() makes the model again.
inline constexpr const char* model_key = "sotto.images.model";
std::string model_text(const ImageNetworkOptions& options, const std::vector<std::string>& classes);

struct SavedImageModel {
  ImageNetworkOptions options;
  std::vector<std::string> classes;
  std::unique_ptr<nn::Module> network;
  NetworkInputs inputs;
};
// Throws SystemFailure for a file that is not a model of this program.
SavedImageModel load_model(const std::string& path);

// Writes a saved model that was tuned from a published one for its first publisher's software, with
// the size and scale of its pictures.
void export_model(const samples::ExportCommand& command);

// The model's logits for pictures [n, c, size, size], on the CPU.
Tensor logits_of(const SavedImageModel& model, const Tensor& pictures);

}  // namespace sotto::images
