#include "samples/images/image_network.h"

#include "autograd/precision.h"
#include "core/error.h"
#include "nn/data/images/scattering.h"
#include "nn/layers.h"
#include "samples/models/workloads.h"

namespace sotto::images {

namespace {

constexpr std::int64_t max_size = 496;  // that of scattering_features()
constexpr std::int64_t patch = 4;       // a side in pixels, of what one feature or token is of

// Features are kept in 16 bits, and computed with in 32.
class ToF32 final : public nn::Module {
 public:
  Var forward(const Var& x) override { return cast(x, Dtype::f32); }
};

// A network of pictures in [0, 1] that are standardised by constants first: the means and
// deviations of CIFAR-10's red, green and blue that De et al. 2022 take, and their averages for
// grey pictures.
class OnStandardized final : public nn::Module {
 public:
  OnStandardized(std::int64_t channels, std::unique_ptr<nn::Module> network)
      : standardize_(channels), network_(std::move(network)) {
    const bool grey = channels == 1;
    set(*standardize_.mean, grey ? Values{0.4734F} : Values{0.49139968F, 0.48215841F, 0.44653091F});
    set(*standardize_.deviation,
        grey ? Values{0.2507F} : Values{0.24703223F, 0.24348513F, 0.26158784F});
  }
  Var forward(const Var& x) override { return (*network_)(standardize_(x)); }
  void visit(const nn::Visitor& visitor) override {
    visitor("standardize", standardize_);
    visitor("network", *network_);
  }

 private:
  using Values = std::vector<float>;
  static void set(Parameter& parameter, const Values& values) {
    parameter.value = Tensor::from(values, parameter.value.shape());
  }

  nn::Standardize standardize_;
  std::unique_ptr<nn::Module> network_;
};

std::unique_ptr<StartedNetwork> start_network(const ImageNetworkOptions& options) {
  using enum nn::StoredNorms;
  const auto norms = options.norms == "group" ? group : options.norms == "folded" ? folded : frozen;
  return std::make_unique<StartedNetwork>(
      options.start, nn::PretrainedOptions{.classes = options.classes, .batch_norm = norms},
      options.input_size);
}

}  // namespace

std::vector<std::string> stored_norm_names() { return {"frozen", "folded", "group"}; }

std::vector<std::string> network_names() {
  return {"scattering", "cnn", "resnet18", "resnet20", "resnet50", "wrn-16-4", "vit-tiny"};
}

void check_network(const ImageNetworkOptions& options) {
  const std::int64_t size = options.shape.size;
  if (options.is_pretrained()) return samples::check_start(options.start);
  check(size >= 8 && size <= max_size, "--size: {} is not from 8 to {}", size, max_size);
  if (options.model == "scattering") {
    const std::int64_t groups = options.features.groups;
    check(size % patch == 0, "--size: {} is not a multiple of {} (for scattering)", size, patch);
    check(groups == 0 || (groups > 0 && scattering_paths % groups == 0),
          "--groups: {} is not 0 and does not divide the {} paths of a channel", groups,
          scattering_paths);
  }
  check(options.model == "scattering" || !options.features.mirror,
        "--mirror: needs --model scattering");
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
    return std::make_unique<OnStandardized>(pictures.channels, models::wide_resnet(pictures));
  if (options.model == "vit-tiny") {
    return models::vision_transformer({.side = options.shape.size,
                                       .patch = patch,
                                       .classes = options.classes,
                                       .channels = options.shape.channels});
  }
  check(options.model == "scattering", "--model: no network is called {}", options.model);
  return std::make_unique<nn::Sequential>(nn::Sequential{
      ToF32(), nn::Linear(feature_count(options.shape, options.features), options.classes)});
}

NetworkInputs::NetworkInputs(const ImageNetworkOptions& options) {
  check_network(options);
  if (options.is_pretrained()) {
    trunk_ = start_network(options);
    if (!trunk_->of_features()) trunk_.reset();
  } else if (options.model == "scattering") {
    features_.emplace(options.shape, options.features);
  }
}

Tensor NetworkInputs::operator()(const Tensor& pictures) const {
  if (trunk_) return trunk_->features(pictures);
  return features_ ? (*features_)(pictures) : pictures;
}

}  // namespace sotto::images
