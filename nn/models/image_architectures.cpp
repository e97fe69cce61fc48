// Residual networks and EfficientNet-lite among the architectures: their options are read off the
// names and shapes of a file, and stand in the config from then on.
#include <nlohmann/json.hpp>

#include "core/io/utf8.h"
#include "core/io/weights_file.h"
#include "nn/models/architecture.h"
#include "nn/models/config.h"
#include "nn/models/efficientnet.h"
#include "nn/models/resnet.h"

namespace sotto::nn {

namespace {

constexpr const char* resnet_names = R"(# ResNet as torchvision and timm write it.
known   layer1.0.conv1.weight
conv1.weight                          =
layer*.*.conv*.weight                 =
layer*.*.downsample.0.weight          =
bn1.{weight,bias}                     =
bn1.{running_mean,running_var}        =
layer*.*.bn*.{weight,bias}            =
layer*.*.bn*.{running_mean,running_var}          =
layer*.*.downsample.1.{weight,bias}   =
layer*.*.downsample.1.{running_mean,running_var} =
**.num_batches_tracked                -    ignored   # a counter of training steps
fc.{weight,bias}                      =    head
)";

constexpr const char* efficientnet_names =
    R"(# EfficientNet-lite as efficientnet_lite_pytorch writes it.
known   _conv_stem.weight
_conv_stem.weight                     =
_bn0.{weight,bias,running_mean,running_var}      =
_blocks.*._{expand,depthwise,project}_conv.weight =
_blocks.*._bn*.{weight,bias}          =
_blocks.*._bn*.{running_mean,running_var}        =
_conv_head.weight                     =
_bn1.{weight,bias,running_mean,running_var}      =
**.num_batches_tracked                -    ignored   # a counter of training steps
_fc.{weight,bias}                     =    head
)";

constexpr const char* timm_efficientnet_names = R"(# tf_efficientnet_lite0 to 4 as timm writes them.
known   conv_stem.weight
conv_stem.weight                      =
bn1.{weight,bias,running_mean,running_var}       =
blocks.*.*.conv_{pw,dw,pwl}.weight    =
blocks.*.*.bn*.{weight,bias}          =
blocks.*.*.bn*.{running_mean,running_var}        =
conv_head.weight                      =
bn2.{weight,bias,running_mean,running_var}       =
**.num_batches_tracked                -    ignored   # a counter of training steps
classifier.{weight,bias}              =    head
)";

// The shapes of a file's tensors.
class Shapes {
 public:
  explicit Shapes(const WeightsFile& file) : file_(file) {}
  bool has(const std::string& name) const { return file_.tensors().contains(name); }
  // The sizes of a convolution's weight, [o, c, k, k].
  Shape convolution(const std::string& name) const {
    check(has(name), "weights: {}: there is no {}", file_.path(), name);
    const Shape& shape = file_.tensors().at(name).shape;
    const bool square = shape.rank() == 4 && shape.numel() > 0 && shape[2] == shape[3];
    check(square, "weights: {}: {} is {}, not a square convolution", file_.path(), name, shape);
    return shape;
  }
  // The rows of a head, or absent.
  std::optional<std::int64_t> rows(const std::string& name) const {
    if (!has(name)) return std::nullopt;
    const Shape& shape = file_.tensors().at(name).shape;
    return shape.rank() == 2 ? std::optional(shape[0]) : std::nullopt;
  }

 private:
  const WeightsFile& file_;
};

std::string numbered(const char* text, std::int64_t number) {
  return text + std::to_string(number);
}

// The norms and classes of a file.
nlohmann::json norms_and_classes(const Shapes& shapes, const std::string& norm,
                                 const std::string& head, const PretrainedOptions& options) {
  nlohmann::json config{{"group_norm", !shapes.has(norm + ".running_mean")}};
  if (options.norm_groups > 0) config["norm_groups"] = options.norm_groups;
  if (const auto classes = shapes.rows(head)) config["num_classes"] = *classes;
  return config;
}

ConvNorm norm_of(const ConfigFields& fields, double eps) {
  constexpr std::int64_t usual_groups = 32;  // Wu and He 2018
  return {.group = fields.flag("group_norm", false),
          .groups = fields.size("norm_groups", usual_groups),
          .eps = fields.positive("norm_eps", eps)};
}

// The integers of a list in the config.
std::vector<std::int64_t> sizes(const nlohmann::json& list, const char* field) {
  constexpr std::int64_t most = 1 << 20;
  check(list.is_array(), "config: {} is {}, not a list of sizes", field, shown(list));
  std::vector<std::int64_t> all;
  for (const nlohmann::json& value : list) {
    check(value.is_number_integer() && value >= 1 && value <= most, "config: {} holds {}", field,
          shown(value));
    all.push_back(value.get<std::int64_t>());
  }
  return all;
}

nlohmann::json resnet_config(const WeightsFile& file, const PretrainedOptions& options) {
  const Shapes shapes(file);
  const Shape stem = shapes.convolution("conv1.weight"),
              first = shapes.convolution("layer1.0.conv1.weight"),
              middle = shapes.convolution("layer1.0.conv2.weight");
  nlohmann::json config = norms_and_classes(shapes, "bn1", "fc.weight", options);
  std::vector<std::int64_t> blocks;
  for (std::int64_t stage = 1; shapes.has(numbered("layer", stage) + ".0.conv1.weight"); ++stage) {
    const std::string path = numbered("layer", stage) + ".";
    std::int64_t& count = blocks.emplace_back(0);
    while (shapes.has(path + std::to_string(count) + ".conv1.weight")) ++count;
  }
  const bool bottleneck = shapes.has("layer1.0.conv3.weight");
  check(stem[2] == 7 || stem[2] == 3, "weights: {}: conv1.weight is {}, neither 7x7 nor 3x3",
        file.path(), stem);
  config.update({{"blocks", blocks},
                 {"bottleneck", bottleneck},
                 {"width", stem[0]},
                 {"widening", bottleneck ? std::max<std::int64_t>(1, first[0] / stem[0]) : 1},
                 {"conv_groups", std::max<std::int64_t>(1, first[0] / middle[1])},
                 {"channels", stem[1]},
                 {"large_images", stem[2] == 7}});
  return config;
}

// Throws std::invalid_argument for an option of timm's that changes what is computed: all others
// are read off the file.
void check_timm(const ConfigFields& fields) {
  fields.require("global_pool", "avg");
  ConfigFields(fields.object("model_args"))
      .check_known("model_args",
                   {"num_classes", "in_chans", "drop_rate", "drop_path_rate", "pos_drop_rate",
                    "proj_drop_rate", "attn_drop_rate", "zero_init_last"},
                   {{"global_pool", "avg"}, {"output_stride", 32}});
}

std::unique_ptr<PretrainedModel> make_resnet(const nlohmann::json& config,
                                             const PretrainedOptions&) {
  const ConfigFields fields(config);
  check_timm(fields);
  const std::string name = fields.architecture();
  check(!name.starts_with("resnetaa") && !name.starts_with("resnetblur"),
        "config: {} smooths where it strides, which is not supported", excerpt(name));
  return std::make_unique<ResNet>(ResNetOptions{.blocks = sizes(config.at("blocks"), "blocks"),
                                                .bottleneck = fields.flag("bottleneck", false),
                                                .width = fields.size("width"),
                                                .widening = fields.size("widening", 1),
                                                .conv_groups = fields.size("conv_groups", 1),
                                                .norm = norm_of(fields, 1e-5),
                                                .classes = fields.classes(),
                                                .channels = fields.size("channels", 3),
                                                .large_images = fields.flag("large_images", true)});
}

// The path of a block in a file, with the dot behind it.
std::string block_path(bool timm, std::int64_t stage, std::int64_t k, std::int64_t number) {
  return timm ? fmt::format("blocks.{}.{}.", stage, k) : fmt::format("_blocks.{}.", number);
}

// Channels in and inside, kernel, and channels out, of the block at this path.
std::vector<std::int64_t> block_sizes(const Shapes& shapes, const std::string& path, bool timm) {
  const std::string expand = path + (timm ? "conv_pw.weight" : "_expand_conv.weight");
  const Shape depthwise =
      shapes.convolution(path + (timm ? "conv_dw.weight" : "_depthwise_conv.weight"));
  const bool expands = shapes.has(path + (timm ? "conv_pwl.weight" : "_expand_conv.weight"));
  const std::string project = path + (!timm     ? "_project_conv.weight"
                                      : expands ? "conv_pwl.weight"
                                                : "conv_pw.weight");
  return {expands ? shapes.convolution(expand)[1] : depthwise[0], depthwise[0], depthwise[2],
          shapes.convolution(project)[0]};
}

nlohmann::json efficientnet_config(const WeightsFile& file, const PretrainedOptions& options) {
  const Shapes shapes(file);
  const bool timm = shapes.has("conv_stem.weight");
  const std::string mark = timm ? "" : "_";
  const Shape stem = shapes.convolution(mark + "conv_stem.weight"),
              head = shapes.convolution(mark + "conv_head.weight");
  nlohmann::json config = norms_and_classes(shapes, timm ? "bn1" : "_bn0",
                                            timm ? "classifier.weight" : "_fc.weight", options);
  config.update(
      {{"stem", stem[0]}, {"features", head[0]}, {"channels", stem[1]}, {"timm_names", timm}});
  nlohmann::json& stages = config["stages"] = nlohmann::json::array();
  std::int64_t number = 0;
  const auto next = [&](std::int64_t stage, std::int64_t k) {
    const std::string path = block_path(timm, stage, k, number);
    const bool there = shapes.has(path + (timm ? "conv_dw.weight" : "_depthwise_conv.weight"));
    return there ? block_sizes(shapes, path, timm) : std::vector<std::int64_t>();
  };
  // Without timm's names, a stage begins where the channels change: no two of these models'
  // neighbouring stages have the same.
  for (std::int64_t stage = 0; !next(stage, 0).empty(); ++stage) {
    nlohmann::json& blocks = stages.emplace_back(nlohmann::json::array());
    for (auto block = next(stage, 0); !block.empty(); block = next(stage, std::ssize(blocks))) {
      if (!timm && !blocks.empty() && blocks.back().back() != block.back()) break;
      blocks.push_back(block);
      ++number;
    }
  }
  return config;
}

std::unique_ptr<PretrainedModel> make_efficientnet(const nlohmann::json& config,
                                                   const PretrainedOptions&) {
  constexpr std::array<std::int64_t, 7> strides{1, 2, 2, 2, 1, 2, 1};  // of the stages
  const ConfigFields fields(config), arguments(fields.object("model_args"));
  check_timm(fields);
  const bool timm_names = fields.flag("timm_names", false),
             tensorflow = !timm_names || fields.architecture().starts_with("tf_");
  EfficientNetOptions options{.stem = fields.size("stem"),
                              .features = fields.size("features"),
                              .classes = fields.classes(),
                              .channels = fields.size("channels", 3),
                              .norm = norm_of(fields, tensorflow ? 1e-3 : 1e-5),
                              .timm_names = timm_names,
                              .same_padding = tensorflow,
                              .dropout = arguments.rate("drop_rate", 0),
                              .drop_path = arguments.rate("drop_path_rate", 0)};
  const nlohmann::json& stages = config.at("stages");
  check(stages.is_array() && stages.size() == strides.size(),
        "config: stages: {} of them, where EfficientNet has {}", stages.size(), strides.size());
  for (const nlohmann::json& blocks : stages) {
    check(blocks.is_array() && !blocks.empty(), "config: stages: {}", shown(blocks));
    std::vector<InvertedResidualOptions>& stage = options.stages.emplace_back();
    for (const nlohmann::json& block : blocks) {
      const std::vector<std::int64_t> of = sizes(block, "stages");
      check(of.size() == 4, "config: stages: a block of {} sizes", of.size());
      const std::int64_t stride = stage.empty() ? strides[options.stages.size() - 1] : 1;
      stage.push_back(
          {.in = of[0], .out = of[3], .inner = of[1], .kernel = of[2], .stride = stride});
    }
  }
  return std::make_unique<EfficientNet>(options);
}

}  // namespace

Architecture resnet_architecture() {
  return {.names = {"resnet", "resnet**", "resnext**", "wide_resnet**", "**.ResNet"},
          .tables = {resnet_names},
          .make = make_resnet,
          .config_of = resnet_config,
          .beneath_config = true};
}

Architecture efficientnet_architecture() {
  return {.names = {"efficientnet_lite", "efficientnet_lite*", "tf_efficientnet_lite*",
                    "efficientnet-lite*"},
          .tables = {efficientnet_names, timm_efficientnet_names},
          .make = make_efficientnet,
          .config_of = efficientnet_config,
          .beneath_config = true};
}

}  // namespace sotto::nn
