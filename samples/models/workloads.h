// The networks whose training steps are timed: the workloads of the literature on private training
// (Subramani, Vadivelu, Kamath 2021), and larger networks of today's kinds.
#pragma once

#include <memory>

#include "nn/layers.h"

namespace sotto::models {

constexpr std::int64_t adult_features = 104;
constexpr std::int64_t imdb_rows = 10'004, imdb_words = 10'000, imdb_length = 256;
constexpr std::int64_t characters = 65, text_length = 128;

// Pictures [n, channels, h, w] and their logits [n, classes].
struct PictureOptions {
  std::int64_t channels = 3, classes = 10;
};
// Eight 3x3 convolutions with pooling in between and averaging at the end, for h, w >= 8, with ReLU
// or, which suits private training better, with tanh (Papernot et al. 2021, table 2).
enum class CifarActivation { relu, tanh };
std::unique_ptr<nn::Module> cifar_network(const PictureOptions& options = {},
                                          CifarActivation activation = CifarActivation::relu);
// The mean over the embeddings of words [n, 256], then a linear layer: [n, 2].
std::unique_ptr<nn::Module> embedding_network();
// embedding_network() with an LSTM of width 100 between embedding and mean.
std::unique_ptr<nn::Module> lstm_network();
// ResNet-18 for small pictures with group normalisation (He et al. 2016a, Wu and He 2018).
std::unique_ptr<nn::Module> resnet18(const PictureOptions& options = {});
// ResNet-20 of 16, 32 and 64 channels with group normalisation (He et al. 2016a, section 4.2).
std::unique_ptr<nn::Module> resnet20(const PictureOptions& options = {});
// ResNet-50 for small pictures with group normalisation.
std::unique_ptr<nn::Module> resnet50(const PictureOptions& options = {});
// WRN-16-4 as De et al. 2022 train it privately. Pictures are to be standardised.
std::unique_ptr<nn::Module> wide_resnet(const PictureOptions& options = {});
// A vision transformer over patches of [n, channels, side, side] (Dosovitskiy et al. 2021),
// averaged at the end: [n, classes]. The defaults are twelve blocks of width 192 over 4x4 patches
// of 32x32 pixels.
struct VisionOptions {
  std::int64_t side = 32, patch = 4, width = 192, heads = 3, blocks = 12, classes = 10;
  std::int64_t channels = 3;
};
std::unique_ptr<nn::Module> vision_transformer(const VisionOptions& options = {});
// A causal transformer over [n, length] words (Radford et al. 2019, with a separate output layer):
// [n, length, words]. The defaults are six blocks of width 384 over 128 characters.
struct CausalOptions {
  std::int64_t words = characters, length = text_length, width = 384, heads = 6, blocks = 6;
};
std::unique_ptr<nn::Module> causal_transformer(const CausalOptions& options = {});

}  // namespace sotto::models
