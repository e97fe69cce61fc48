#include "samples/images/image_network.h"

#include "autograd/ops.h"
#include "autograd/precision.h"
#include "core/error.h"
#include "nn/data/images/scattering.h"
#include "nn/layers.h"
#include "samples/models/workloads.h"

namespace sotto::images {

namespace {

constexpr std::int64_t max_size = 496;  // that of scattering_features()
constexpr std::int64_t patch = 4;       // a side in pixels, of what one feature or token is of
// Two features along an axis, of half a picture.
constexpr std::int64_t min_cnn_size = 4 * patch;

// Features are kept in 16 bits, and computed with in 32.
class ToF32 final : public nn::Module {
 public:
  Var forward(const Var& x) override { return cast(x, Dtype::f32); }
};

class FlatF32 final : public nn::Module {
 public:
  Var forward(const Var& x) override { return flatten(cast(x, Dtype::f32)); }
};

// A network of inputs whose channels are standardised first.
class OnStandardized final : public nn::Module {
 public:
  OnStandardized(std::int64_t channels, std::unique_ptr<nn::Module> network)
      : standardize(channels), network_(std::move(network)) {}
  Var forward(const Var& x) override { return (*network_)(standardize(cast(x, Dtype::f32))); }
  void visit(const nn::Visitor& visitor) override {
    visitor("standardize", standardize);
    visitor("network", *network_);
  }

  nn::Standardize standardize;

 private:
  std::unique_ptr<nn::Module> network_;
};

// Standardises pictures in [0, 1] by the means and deviations of CIFAR-10's red, green and blue
// that De et al. 2022 take, and by their averages for grey pictures.
std::unique_ptr<nn::Module> on_standardized_pictures(std::int64_t channels,
                                                     std::unique_ptr<nn::Module> network) {
  using Values = std::vector<float>;
  const bool grey = channels == 1;
  const auto set = [](Parameter& parameter, const Values& values) {
    parameter.value = Tensor::from(values, parameter.value.shape());
  };
  auto all = std::make_unique<OnStandardized>(channels, std::move(network));
  set(*all->standardize.mean,
      grey ? Values{0.4734F} : Values{0.49139968F, 0.48215841F, 0.44653091F});
  set(*all->standardize.deviation,
      grey ? Values{0.2507F} : Values{0.24703223F, 0.24348513F, 0.26158784F});
  return all;
}

std::unique_ptr<nn::Module> scattering_network(const ImageNetworkOptions& options) {
  const Shape shape = feature_shape(options.shape, options.features);
  if (options.model == "scattering")
    return std::make_unique<nn::Sequential>(
        nn::Sequential{FlatF32(), nn::Linear(shape.numel(), options.classes)});
  // Tramer and Boneh's network on these features (2021).
  constexpr std::int64_t width = 64;
  const auto halved = [](std::int64_t side) { return (side + 1) / 2; };
  return std::make_unique<nn::Sequential>(
      nn::Sequential{ToF32(), nn::Conv2d(shape[0], width, 3, {.padding = {1}}), nn::Tanh(),
                     nn::MaxPool2d({.kernel = {2}, .ceil_mode = true}),
                     nn::Conv2d(width, width, 3, {.padding = {1}}), nn::Tanh(), nn::Flatten(),
                     nn::Linear(width * halved(shape[1]) * halved(shape[2]), options.classes)});
}

std::unique_ptr<StartedNetwork> start_network(const ImageNetworkOptions& options) {
  using enum nn::StoredNorms;
  const auto norms = options.norms == "group" ? group : options.norms == "folded" ? folded : frozen;
  return std::make_unique<StartedNetwork>(
      options.start,
      nn::PretrainedOptions{
          .classes = options.classes, .batch_norm = norms, .image_size = options.input_size},
      StartedOptions{options.input_size, options.cached, options.layers});
}

}  // namespace

std::vector<std::string> stored_norm_names() { return {"frozen", "folded", "group"}; }

std::vector<std::string> network_names() {
  return {"scattering", "scattering-cnn", "cnn",      "resnet18",
          "resnet20",   "resnet50",       "wrn-16-4", "vit-tiny"};
}

void check_network(const ImageNetworkOptions& options) {
  const std::int64_t size = options.shape.size;
  if (options.is_pretrained()) return samples::check_start(options.start);
  check(size >= 8 && size <= max_size, "--size: {} is not from 8 to {}", size, max_size);
  if (options.scatters()) {
    const std::int64_t groups = options.features.groups;
    check(size % patch == 0, "--size: {} is not a multiple of {} (for scattering)", size, patch);
    check(groups == 0 || (groups > 0 && scattering_paths % groups == 0),
          "--groups: {} is not 0 and does not divide the {} paths of a channel", groups,
          scattering_paths);
    check(options.model == "scattering" || size >= min_cnn_size,
          "--size: {} is below {} (for scattering-cnn)", size, min_cnn_size);
  }
  check(options.scatters() || !options.features.mirror,
        "--mirror: needs --model scattering or scattering-cnn");
  check(options.scatters() || !options.standardize,
        "--standardize: needs --model scattering or scattering-cnn");
  check(options.model != "vit-tiny" || size % patch == 0,
        "--size: {} is not a multiple of {} (for vit-tiny)", size, patch);
}

std::unique_ptr<nn::Module> make_network(const ImageNetworkOptions& options) {
  check_network(options);
  if (options.is_pretrained()) return start_network(options);
  const models::PictureOptions pictures{options.shape.channels, options.classes};
  if (options.model == "cnn") return models::cifar_network(pictures, models::CifarActivation::tanh);
  if (options.model == "resnet18") return models::resnet18(pictures);
  if (options.model == "resnet20") return models::resnet20(pictures);
  if (options.model == "resnet50") return models::resnet50(pictures);
  if (options.model == "wrn-16-4")
    return on_standardized_pictures(pictures.channels, models::wide_resnet(pictures));
  if (options.model == "vit-tiny") {
    return models::vision_transformer({.side = options.shape.size,
                                       .patch = patch,
                                       .classes = options.classes,
                                       .channels = options.shape.channels});
  }
  check(options.scatters(), "--model: no network is called {}", options.model);
  auto network = scattering_network(options);
  if (!options.standardize) return network;
  return std::make_unique<OnStandardized>(scattering_paths * options.shape.channels,
                                          std::move(network));
}

StandardizeOptions standardize_options(nn::Module& network, const ImageNetworkOptions& options) {
  // Features that constants have scaled to about the size of 1 are within 6 for CIFAR-10 and MNIST.
  constexpr double most = 6;
  StandardizeOptions all{.layer = &dynamic_cast<OnStandardized&>(network).standardize};
  for (std::int64_t c = 0; c < scattering_paths * options.shape.channels; ++c)
    all.ranges[c] = {-most, most};
  return all;
}

NetworkInputs::NetworkInputs(const ImageNetworkOptions& options) {
  check_network(options);
  if (options.is_pretrained()) {
    trunk_ = start_network(options);
    if (!trunk_->of_trunk()) trunk_.reset();
  } else if (options.scatters()) {
    const auto& [size, channels] = options.shape;
    scattering_ = fmt::format("{} x {}, {} channels, planes of {} groups{}", size, size, channels,
                              options.features.groups, options.features.mirror ? ", mirror" : "");
    features_.emplace(options.shape, options.features);
  }
}

Tensor NetworkInputs::operator()(const Tensor& pictures) const {
  if (trunk_) return trunk_->trunk_values(pictures);
  return features_ ? (*features_)(pictures) : pictures;
}

std::string NetworkInputs::identity() const {
  return trunk_ ? trunk_->trunk_identity() : scattering_;
}

}  // namespace sotto::images
