// Residual networks and EfficientNet-lite: sizes, names, and files without a config.
#include <filesystem>
#include <map>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/io/safetensors.h"
#include "core/random/philox.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/models/efficientnet.h"
#include "nn/models/frozen_norm.h"
#include "nn/models/image_input.h"
#include "nn/models/pretrained.h"
#include "nn/models/resnet.h"
#include "nn/models/wide_resnet.h"
#include "nn/state.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

Tensor images(std::int64_t n, std::int64_t side) {
  PublicRandom random(11, static_cast<std::uint64_t>(side));
  return nn::random_normal({n, 3, side, side}, 0, 1, random);
}

Tensor logits(nn::Module& net, const Tensor& x) {
  Tape tape;
  return net(tape.input(x)).value();
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const Tensor difference = unary(unary_index<functors::Abs>, sub(a, b));
  return reduce(Reduction::max, difference, {}, false).item();
}

// Convolutions without bias, two numbers for each channel of a norm, a linear layer.
std::int64_t parameters_of(const nn::ResNetOptions& o) {
  const auto normed = [](std::int64_t in, std::int64_t out, std::int64_t taps) {
    return in * out * taps + 2 * out;
  };
  std::int64_t all = normed(3, o.width, 49), in = o.width, width = o.width;
  for (const std::int64_t blocks : o.blocks) {
    const std::int64_t out = o.bottleneck ? 4 * width : width, inner = o.widening * width;
    if (in != out) all += normed(in, out, 1);
    for (std::int64_t k = 0; k < blocks; ++k, in = out) {
      all += o.bottleneck ? normed(in, inner, 1) + normed(inner, inner, 9) + normed(inner, out, 1)
                          : normed(in, out, 9) + normed(out, out, 9);
    }
    width *= 2;
  }
  return all + in * o.classes + o.classes;
}

nn::EfficientNetOptions narrow(bool timm_names) {
  nn::EfficientNetOptions options = nn::parse_efficientnet("efficientnet_lite0");
  for (auto& stage : options.stages) {
    for (auto& block : stage) block.in /= 8, block.inner /= 8, block.out /= 8;
  }
  options.stem = 4;
  options.features = 16;
  options.classes = 5;
  options.timm_names = timm_names;
  return options;
}

// The model's parameters and statistics in a file, as other software writes it.
void write(const std::string& path, nn::Module& net) {
  TensorFile file;
  for (const auto& [name, value] : nn::parameter_tensors(net)) file.tensors[name] = value;
  const std::function<void(const std::string&, nn::Module&)> add = [&](const std::string& at,
                                                                       nn::Module& module) {
    if (auto* const norm = dynamic_cast<nn::FrozenBatchNorm*>(&module)) {
      norm->visit_statistics([&](const std::string& name, Tensor& value) {
        file.tensors[at + name] = value;
        file.tensors[at + "num_batches_tracked"] = zeros({}, Dtype::i64);
      });
    }
    module.visit(nn::Visitor(
        [](const std::string&, Parameter&) {},
        [&](const std::string& name, nn::Module& child) { add(at + name + ".", child); }));
  };
  add("", net);
  save_safetensors(path, file);
}

}  // namespace

TEST_CASE("residual networks have the published numbers of parameters") {
  const std::map<std::string, std::int64_t> published{
      {"resnet18", 11689512},         {"resnet34", 21797672},  {"resnet50", 25557032},
      {"resnet101", 44549160},        {"resnet152", 60192808}, {"wide_resnet50_2", 68883240},
      {"wide_resnet101_2", 126886696}};
  for (const auto& [name, count] : published) CHECK(parameters_of(nn::parse_resnet(name)) == count);
  nn::ResNet small({.blocks = {1, 2}, .bottleneck = true, .width = 4, .widening = 2, .classes = 3});
  CHECK(small.parameter_count() ==
        parameters_of(
            {.blocks = {1, 2}, .bottleneck = true, .width = 4, .widening = 2, .classes = 3}));
  CHECK(throws([] { nn::parse_resnet("resnet20"); }, "ResNet: none is called resnet20"));
  CHECK(throws([] { nn::ResNet({.blocks = {1, 0}}); }, "ResNet: a stage of 0 blocks"));
}

TEST_CASE("the stride of a bottleneck is that of its 3x3 convolution") {
  nn::ResNet net({.blocks = {1, 1}, .bottleneck = true, .width = 4, .classes = 3});
  std::vector<std::int64_t> strides;
  const std::function<void(nn::Module&)> add = [&](nn::Module& module) {
    if (auto* const conv = dynamic_cast<nn::Conv2d*>(&module))
      strides.push_back(conv->options().stride[0]);
    module.visit(nn::Visitor([](const std::string&, Parameter&) {},
                             [&](const std::string&, nn::Module& child) { add(child); }));
  };
  add(net);
  CHECK(strides == std::vector<std::int64_t>{2, 1, 1, 1, 1, 1, 2, 1, 2});
}

TEST_CASE("networks tell their parts, and the features before the classifier") {
  nn::ResNet resnet({.blocks = {1, 2}, .width = 4, .classes = 3});
  CHECK(resnet.parts().block_count == 3);
  CHECK(resnet.parts().block(2) == "layer2.1");
  CHECK(throws([&] { resnet.parts().block(3); }, "ModelParts: block 3 of 3"));
  nn::EfficientNet ours(narrow(false)), timm(narrow(true));
  CHECK(ours.parts().block(4) == "_blocks.4");
  CHECK(timm.parts().block(4) == "blocks.2.1");
  CHECK(ours.parts().block_count == 16);
  Tape tape;
  const Var features = ours.features(tape.input(images(2, 32)));
  CHECK(features.shape() == Shape{2, 16});
  CHECK(largest_difference(ours.classify(features).value(), logits(ours, images(2, 32))) == 0);
  CHECK(resnet.features(tape.input(images(2, 32))).shape() == Shape{2, 8});
}

TEST_CASE("values in front of any block give the logits of the whole network") {
  nn::manual_seed(3);
  nn::ResNet resnet({.blocks = {1, 2, 1}, .width = 4, .classes = 3});
  nn::EfficientNet ours(narrow(false)), timm(narrow(true));
  nn::WideResNet wide({.depth = 16, .widening = 1, .groups = 4});
  for (nn::ImageModel* const net : std::vector<nn::ImageModel*>{&resnet, &ours, &timm, &wide}) {
    const std::int64_t blocks = net->parts().block_count;
    const Tensor expected = logits(*net, images(2, 32));
    for (std::int64_t k = 0; k <= blocks; ++k) {
      Tape tape;
      const Var values = net->before_block(tape.input(images(2, 32)), k);
      CHECK(largest_difference(net->from_block(values, k).value(), expected) == 0);
    }
    Tape tape;
    const Var x = tape.input(images(2, 32));
    CHECK(throws([&] { net->before_block(x, blocks + 1); }, "before_block: block"));
    CHECK(throws([&] { net->from_block(x, -1); }, "from_block: block -1 of"));
  }
  Tape tape;
  const Var x = tape.input(images(2, 32));
  CHECK(ours.before_block(x, 1).shape() == Shape{2, 2, 16, 16});
  CHECK(resnet.before_block(x, 3).shape() == Shape{2, 8, 4, 4});
}

TEST_CASE("EfficientNet-lite has the published numbers of blocks and channels") {
  std::vector<std::int64_t> blocks, channels;
  for (const char* name : {"efficientnet_lite0", "efficientnet_lite2", "efficientnet_lite4"}) {
    const nn::EfficientNetOptions options = nn::parse_efficientnet(name);
    for (const auto& stage : options.stages) blocks.push_back(std::ssize(stage));
    for (const auto& stage : options.stages) channels.push_back(stage.back().out);
  }
  CHECK(blocks ==
        std::vector<std::int64_t>{1, 2, 2, 3, 3, 4, 1, 1, 3, 3, 4, 4, 5, 1, 1, 4, 4, 6, 6, 8, 1});
  CHECK(channels == std::vector<std::int64_t>{16,  24,  40,  80, 112, 192, 320, 16,  24,  48, 88,
                                              120, 208, 352, 24, 32,  56,  112, 160, 272, 448});
  CHECK(nn::EfficientNet(nn::parse_efficientnet("efficientnet_lite0")).parameter_count() ==
        4652008);
  CHECK(throws([] { nn::parse_efficientnet("efficientnet_lite5"); },
               "EfficientNet: none is called efficientnet_lite5"));
}

TEST_CASE("networks are read off the names and shapes of a file, and go back to it") {
  const TemporaryFolder folder;
  const std::string from = folder.path() + "/model.safetensors", to = folder.path() + "/saved";
  const auto check_round_trip = [&](nn::ImageModel& net, const std::string& architecture) {
    write(from, net);
    const Tensor expected = logits(net, images(2, 32));
    for (const nn::StoredNorms norms : {nn::StoredNorms::frozen, nn::StoredNorms::folded}) {
      const nn::Pretrained loaded =
          nn::load_pretrained(from, {.architecture = architecture, .batch_norm = norms});
      CHECK(largest_difference(logits(*loaded.model, images(2, 32)), expected) < 1e-4);
      nn::save_pretrained(loaded, to);
      const nn::Pretrained again = nn::load_pretrained(to);
      CHECK(largest_difference(logits(*again.model, images(2, 32)), expected) < 1e-4);
    }
    const nn::PretrainedOptions grouped{
        .architecture = architecture, .classes = 7, .batch_norm = nn::StoredNorms::group};
    const nn::Pretrained group = nn::load_pretrained(from, grouped);
    CHECK(logits(*group.model, images(2, 32)).shape() == Shape{2, 7});
    nn::save_pretrained(group, to);
    const nn::Pretrained again = nn::load_pretrained(to);
    CHECK(largest_difference(logits(*again.model, images(2, 32)),
                             logits(*group.model, images(2, 32))) == 0);
  };
  nn::ResNet basic({.blocks = {1, 2}, .width = 8, .classes = 3});
  check_round_trip(basic, "resnet18");
  nn::ResNet wide({.blocks = {1, 1},
                   .bottleneck = true,
                   .width = 8,
                   .widening = 2,
                   .conv_groups = 4,
                   .classes = 3});
  check_round_trip(wide, "resnext50_32x4d");
  nn::EfficientNet ours(narrow(false)), timm(narrow(true));
  check_round_trip(ours, "efficientnet_lite0");
  check_round_trip(timm, "tf_efficientnet_lite0");
  nn::EfficientNetOptions trained_there = narrow(true);  // by timm, not by TensorFlow
  trained_there.same_padding = false;
  trained_there.norm.eps = 1e-5;
  nn::EfficientNet other(trained_there);
  check_round_trip(other, "efficientnet_lite0");
}

TEST_CASE("branches of EfficientNet are dropped by sample, the later the more, and in training") {
  constexpr std::int64_t n = 64;
  nn::EfficientNetOptions options = narrow(false);
  for (std::size_t stage = 2; stage < options.stages.size(); ++stage)
    options.stages[stage].resize(1);  // 8 blocks; the first with a shortcut is block 2
  nn::manual_seed(4);
  nn::EfficientNet plain(options);
  options.drop_path = options.dropout = 0.8;
  nn::manual_seed(4);
  nn::EfficientNet net(options);
  const Tensor x = images(n, 16);
  const auto behind = [&](nn::EfficientNet& of, std::int64_t k, const Tensor& some, bool training,
                          std::int64_t first = 0) {
    Tape tape({.training = training, .seed = 5, .first_row = first});
    return of.before_block(tape.input(some), k + 1).value();
  };
  const Tensor in = behind(plain, 1, x, true), whole = behind(plain, 2, x, true),
               seen = behind(net, 2, x, true);
  int dropped = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto branch = [&](const Tensor& y) {
      return sub(y.slice(0, i, i + 1), in.slice(0, i, i + 1));
    };
    const bool kept = largest_difference(branch(seen), zeros({})) > 0;
    dropped += kept ? 0 : 1;
    constexpr double rate = 0.8 * 2 / 8;
    if (kept) CHECK(largest_difference(scale(branch(seen), 1 - rate), branch(whole)) < 1e-5);
  }
  CHECK((dropped > 3 && dropped < 30));
  CHECK(largest_difference(behind(net, 2, x, false), whole) == 0);
  const Tensor alone = behind(net, 2, x.slice(0, 7, 8), true, 7);
  CHECK(largest_difference(alone, seen.slice(0, 7, 8)) < 1e-5);
  for (const bool training : {false, true}) {
    Tape tape({.training = training, .seed = 5});
    const Tensor y = net.classify(tape.input(full({2, 16}, 1))).value();
    CHECK((largest_difference(y.slice(0, 0, 1), y.slice(0, 1, 2)) > 0) == training);
  }
}

TEST_CASE("with dropped branches each image has the gradient of the image alone") {
  nn::EfficientNetOptions options = narrow(true);
  options.drop_path = options.dropout = 0.5;
  nn::manual_seed(4);
  nn::EfficientNet net(options);
  net.to(Dtype::f64);
  constexpr std::int64_t n = 4;
  const Tensor x = to_dtype(images(n, 16), Dtype::f64);
  const auto gradients = [&](std::int64_t begin, std::int64_t end) {
    Tape tape({.training = true, .seed = 5, .first_row = begin});
    PerSampleGradSink sink;
    tape.backward(sum(square(net(tape.input(x.slice(0, begin, end)))), {1}), sink);
    std::map<const Parameter*, Tensor> all;
    for (const auto& [parameter, rows] : sink.all()) all[parameter] = rows;
    return all;
  };
  const auto together = gradients(0, n);
  CHECK(together.size() == net.parameters().size());
  for (std::int64_t row = 0; row < n; ++row) {
    for (const auto& [parameter, alone] : gradients(row, row + 1))
      CHECK(largest_difference(together.at(parameter).slice(0, row, row + 1), alone) < 1e-12);
  }
}

TEST_CASE("absurd configs are refused before memory is taken") {
  const TemporaryFolder folder;
  nn::ResNet net({.blocks = {1, 1}, .width = 4, .classes = 3});
  save_safetensors(folder.path("model.safetensors"), {.tensors = nn::parameter_tensors(net)});
  for (const auto& [config, fault] : std::map<std::string, std::string>{
           {R"("blocks": [1000000])", "config: "},
           {R"("blocks": [-1])", "config: blocks holds -1"},
           {R"("blocks": {})", "config: blocks is {}, not a list of sizes"},
           {R"("width": 65536)", "config: "},
           {R"("conv_groups": 3, "bottleneck": true)", "Conv2d: 4 channels to 4 in 3 groups"},
           {R"("large_images": 7)", "large_images"}}) {
    folder.write("config.json", R"({"architecture": "resnet18", )" + config + "}");
    CHECK(throws([&] { nn::load_pretrained(folder.path()); }, fault));
  }
}

TEST_CASE("pictures are scaled as the file's config says, or as is usual") {
  const TemporaryFolder folder;
  nn::Pretrained model;
  model.report.architecture = "resnet";
  CHECK(nn::image_input(folder.path(), model).mean == std::vector<double>{0.485, 0.456, 0.406});
  model.report.architecture = "efficientnet_lite";
  CHECK(nn::image_input(folder.path(), model).deviation[2] == 128.0 / 255);
  model.report.architecture = "vit";
  CHECK(nn::image_input(folder.path(), model).size == 224);
  model.config = R"({"pretrained_cfg": {"input_size": [3, 96, 96], "mean": [0.1], "std": [0.2]}})";
  CHECK(nn::image_input(folder.path(), model).size == 96);
  CHECK(nn::image_input(folder.path(), model).deviation == std::vector<double>{0.2});
  folder.write(
      "preprocessor_config.json",
      R"({"size": {"height": 32, "width": 32}, "image_mean": [0.5], "image_std": [0.25]})");
  CHECK(nn::image_input(folder.path(), model).size == 32);
  CHECK(nn::image_input(folder.path(), model).mean == std::vector<double>{0.5});
  for (const auto& [text, fault] : std::map<std::string, std::string>{
           {R"({"size": -1})", "size is -1, not a size"},
           {R"({"image_std": [0]})", "image_std is [0], not positive numbers"},
           {R"({"image_mean": [1, 2]})", "2 means and 3 deviations"}}) {
    folder.write("preprocessor_config.json", text);
    model.config = "";
    CHECK(throws([&] { nn::image_input(folder.path(), model); }, fault));
  }
}

TEST_CASE("what a file does not show, and what changes the computation, is refused by name") {
  const TemporaryFolder folder;
  nn::ResNet net({.blocks = {1, 1}, .width = 8, .classes = 3});
  write(folder.path("model.safetensors"), net);
  const auto refused = [&](const std::string& architecture, const std::string& more,
                           const char* why) {
    folder.write("config.json", "{\"architecture\": \"" + architecture + "\"" + more + "}");
    return throws([&] { nn::load_pretrained(folder.path()); }, why);
  };
  CHECK_FALSE(refused("resnet18", R"(, "global_pool": "avg", "model_args": {"in_chans": 3})", ""));
  CHECK(refused("resnetblur18", "", "resnetblur18 smooths where it strides"));
  CHECK(refused("resnetaa34", "", "resnetaa34 smooths where it strides"));
  CHECK(refused("resnet18", R"(, "global_pool": "max")", "global_pool = \"max\""));
  CHECK(refused("resnet18", R"(, "model_args": {"output_stride": 16})", "output_stride = 16"));
  CHECK(
      refused("resnet18", R"(, "model_args": {"act_layer": "gelu"})", "model_args has act_layer"));
}

TEST_CASE("files of other networks are refused by the names of their tensors") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model.safetensors";
  nn::ResNet net({.blocks = {1, 1}, .width = 4, .classes = 3});
  std::map<std::string, Tensor> tensors = nn::parameter_tensors(net);
  const auto refused = [&](const char* text) {
    save_safetensors(path, {.tensors = tensors});
    return throws([&] { nn::load_pretrained(path, {.architecture = "resnet18"}); }, text);
  };
  tensors["layer1.0.se.fc1.weight"] = zeros({2, 4, 1, 1});
  CHECK(refused("left over: layer1.0.se.fc1.weight"));
  tensors.erase("layer1.0.se.fc1.weight");
  tensors["conv1.weight"] = zeros({4, 3, 5, 5});
  CHECK(refused("conv1.weight is (4, 3, 5, 5), neither 7x7 nor 3x3"));
  tensors["conv1.weight"] = zeros({4, 3, 7, 3});
  CHECK(refused("conv1.weight is (4, 3, 7, 3), not a square convolution"));
  tensors.erase("conv1.weight");
  CHECK(refused("there is no conv1.weight"));
}
