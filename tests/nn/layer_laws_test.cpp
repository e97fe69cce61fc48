// Every layer obeys the laws of gradients and samples: a sample alone equals the sample in a batch,
// by every norm method.
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/check/check_layer.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

constexpr testing::CheckOptions few{.instances = 4};

// Checks the layer on inputs [n, ...shape] in [low, high).
template <class Layer>
void check_on(Layer layer, const Shape& shape, double low = -2, double high = 2) {
  nn::manual_seed(7);
  CHECK_NOTHROW(testing::check_layer(
      layer,
      [&](PublicRandom& random) {
        Shape batch = shape;
        batch.insert(0, draw(random, 1, 3));
        return uniform_values(random, batch, low, high);
      },
      few));
}

}  // namespace

TEST_CASE("activations obey the laws") {
  check_on(nn::Celu(0.6), {4});
  check_on(nn::Hardshrink(0.3), {4});
  check_on(nn::Softshrink(0.3), {4});
  check_on(nn::Threshold(0.2, -1), {4});
  check_on(nn::Tanhshrink(), {4});
  check_on(nn::TemperedSigmoid(1.5, 3, 0.5), {4});
  check_on(nn::PRelu(3), {3, 4});
}

TEST_CASE("layers that arrange values obey the laws") {
  check_on(nn::Softmax(1), {3, 4});
  check_on(nn::LogSoftmax(), {3, 4});
  for (const PadMode mode :
       {PadMode::zeros, PadMode::reflect, PadMode::replicate, PadMode::circular})
    check_on(nn::Pad({1, 2, 0, 1}, mode), {2, 3, 4});
  check_on(nn::PixelShuffle(2), {8, 2, 3});
  check_on(nn::PixelUnshuffle(2), {2, 4, 2});
  CHECK(throws([] { nn::Pad({1, 2, 3}); }, "Pad: sizes (1, 2, 3) are not pairs"));
  Tape tape({.private_data = true});
  CHECK(nn::Pad({1, 2, 0, 1})(tape.input(zeros({2, 3, 4, 5}))).shape() == Shape{2, 3, 5, 8});
  CHECK(throws([&] { nn::Softmax(0)(tape.input(zeros({2, 3}))); }, "softmax: combines samples"));
}

TEST_CASE("pixels go where they belong") {
  std::vector<double> numbers(16);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
  Tape tape({.private_data = true});
  const Var x = tape.input(Tensor::from(numbers, {1, 8, 1, 2}));
  const Var y = pixel_shuffle(x, 2);
  // Channels 0 to 3 are the corners of each pixel of the first image.
  CHECK(y.shape() == Shape{1, 2, 2, 4});
  CHECK(values(y.value().select(0, 0).select(0, 0)) == std::vector<double>{0, 2, 1, 3, 4, 6, 5, 7});
  CHECK(values(pixel_unshuffle(y, 2).value()) == numbers);
}

TEST_CASE("pooling and resampling layers obey the laws") {
  check_on(nn::MaxPool1d(2), {2, 6});
  check_on(nn::AvgPool2d(2), {2, 4, 5});
  check_on(nn::AdaptiveAvgPool2d(Shape{2, 3}), {2, 5, 4});
  check_on(nn::AdaptiveMaxPool({2, 3}), {2, 5, 4});
  check_on(nn::LpPool(2, {.kernel = {2}}), {2, 4, 4}, 0.5, 2);
  check_on(nn::Upsample({5, 7}), {2, 3, 4});
  check_on(nn::Upsample({5, 7}, {.mode = Interpolation::linear}), {2, 3, 4});
}

TEST_CASE("transposed convolutions and norms obey the laws") {
  check_on(nn::ConvTranspose1d(4, 6, 3, {.stride = {2}, .output_padding = {1}, .groups = 2}),
           {4, 5});
  check_on(nn::ConvTranspose2d(2, 3, 3, {.padding = {1}, .dilation = {2}}), {2, 4, 3});
  check_on(nn::InstanceNorm1d(3, {.affine = true}), {3, 5});
  check_on(nn::RMSNorm(4), {3, 4});
  check_on(nn::Standardize(3), {3, 2});
  check_on(nn::LocalResponseNorm(3), {5, 4});
  check_on(nn::Bilinear(3, 3, 2), {3});
}

TEST_CASE("low-rank adaptation obeys the laws") {
  check_on(nn::LoraLinear(nn::Linear(4, 3), {.rank = 2}), {2, 4});
  check_on(nn::LoraConv1d(nn::Conv1d(4, 6, 3, {.groups = 2}), {.rank = 2}), {4, 6});
  check_on(nn::LoraConv2d(nn::Conv2d(2, 3, 2), {.rank = 1}), {2, 4, 3});
}

TEST_CASE("cells and transformers obey the laws") {
  check_on(nn::RNNCell(3, 4), {3});
  check_on(nn::GRUCell(3, 4), {3});
  check_on(nn::LSTMCell(3, 4), {3});
  check_on(nn::PositionalEmbedding(6, 4), {5, 4});
  const nn::TransformerOptions options{.dim_feedforward = 6, .batch_first = true};
  check_on(nn::TransformerEncoderLayer(4, 2, options), {3, 4});
}

TEST_CASE("losses as objects are their functions") {
  PublicRandom random(5);
  Tape tape({.private_data = true});
  const Var x = tape.input(uniform_values(random, {3, 4})),
            t = tape.input(uniform_values(random, {3, 4}));
  const Tensor classes = random_ids(random, {3}, 4);
  const auto same = [](const Var& a, const Var& b) {
    CHECK(a.shape() == Shape{3});
    CHECK(values(a.value()) == values(b.value()));
  };
  same(nn::CrossEntropyLoss{{.label_smoothing = 0.1}}(x, classes),
       cross_entropy(x, classes, {.label_smoothing = 0.1}));
  same(nn::NllLoss{}(x, classes), nll_loss(x, classes));
  same(nn::MseLoss{}(x, t), squared_error(x, t));
  same(nn::L1Loss{Within::sum}(x, t), absolute_error(x, t, Within::sum));
  same(nn::SmoothL1Loss{0.5}(x, t), smooth_l1_loss(x, t, 0.5));
  same(nn::HuberLoss{0.5}(x, t), huber_loss(x, t, 0.5));
  same(nn::BceLoss{}(sigmoid(x), sigmoid(t)), binary_cross_entropy(sigmoid(x), sigmoid(t)));
  same(nn::BceWithLogitsLoss{}(x, sigmoid(t)), binary_cross_entropy_with_logits(x, sigmoid(t)));
  same(nn::KlDivLoss{true}(x, t), kl_div(x, t, true));
  same(nn::PoissonNllLoss{}(x, exp(t)), poisson_nll_loss(x, exp(t)));
  same(nn::HingeLoss{0.5}(x, t), hinge_loss(x, t, 0.5));
  same(nn::CosineEmbeddingLoss{}(x, t, tape.input(full({3}, 1, Dtype::f64))),
       cosine_embedding_loss(x, t, tape.input(full({3}, 1, Dtype::f64))));
  same(nn::TripletMarginLoss{.p = 1}(x, t, affine(x, 2, 1)),
       triplet_margin_loss(x, t, affine(x, 2, 1), 1, 1));
  const Var steps = tape.input(uniform_values(random, {2, 3, 4}, -3, 0), 1);
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{1, 2, 3}, {3, 1}),
               twos = Tensor::from(std::vector<std::int64_t>{2, 2, 2}, {3}),
               ones = Tensor::from(std::vector<std::int64_t>{1, 1, 1}, {3});
  same(nn::CtcLoss{}(steps, labels, twos, ones), ctc_loss(steps, labels, twos, ones));
}
