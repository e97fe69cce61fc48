// pretrained_program IN OUT INPUTS LOGITS [CLASSES [SIZE]]
//
// Loads the model of the folder IN, changes its weights, saves it to OUT, and writes its logits for
// the tensors of INPUTS: pixel_values, or input_ids and attention_mask. CLASSES and SIZE of images:
// 0 for the file's.
#include <string>

#include <fmt/format.h>

#include "autograd/tape.h"
#include "core/io/safetensors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/pretrained.h"

using namespace sotto;

namespace {

Var logits_of(const nn::Pretrained& loaded, const TensorFile& inputs, Tape& tape) {
  const auto pixels = inputs.tensors.find("pixel_values");
  if (pixels != inputs.tensors.end()) return (*loaded.model)(tape.input(pixels->second));
  return loaded.tokens()(nn::TokenInputs{.ids = tape.input(inputs.tensors.at("input_ids")),
                                         .mask = tape.input(inputs.tensors.at("attention_mask"))});
}

void run(const std::vector<std::string>& words) {
  check(words.size() >= 4 && words.size() <= 6, "usage: IN OUT INPUTS LOGITS [CLASSES [SIZE]]");
  const auto number = [&](std::size_t k) { return words.size() > k ? std::stoll(words[k]) : 0; };
  const nn::Pretrained loaded =
      nn::load_pretrained(words[0], {.classes = number(4), .image_size = number(5)});
  constexpr double change = 1.125;  // the saved weights are not those of the file
  for (const auto& [name, parameter] : loaded.model->named_parameters())
    parameter->value = scale(parameter->value, change);
  nn::save_pretrained(loaded, words[1]);
  Tape tape({.training = false});
  const Var logits = logits_of(loaded, load_safetensors(words[2]), tape);
  save_safetensors(words[3], {.tensors = {{"logits", logits.value()}}});
}

}  // namespace

int main(int count, char** words) {
  try {
    run({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
