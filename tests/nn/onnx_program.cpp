// Our half of onnx_test.py: onnx_program FOLDER exports layers and operations to NAME.onnx, and
// writes inputs and our results, for two numbers of samples, to NAME.0 and NAME.1, as safetensors.
// It prints a line for each: the layer, the file, and why it was refused.
#include <cstdio>
#include <exception>
#include <string>

#include "core/io/safetensors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/export_onnx.h"
#include "nn/predict.h"
#include "tests/support/onnx_cases.h"

using namespace sotto;

namespace {

void write(const std::string& path, nn::Module& module, const Tensor& x) {
  save_safetensors(path, {.tensors = {{"input", contiguous(x)},
                                      {"output", contiguous(nn::predict(module, x))}}});
}

void export_case(const testing::OnnxCase& one, const std::string& folder, int number) {
  const std::string name = "case_" + std::to_string(number), path = folder + "/" + name;
  std::string refusal;
  try {
    nn::export_onnx(*one.module, one.example.slice(0, 0, 1), path + ".onnx");
    write(path + ".0", *one.module, one.example);
    write(path + ".1", *one.module, concat({one.example, one.example}, 0));
  } catch (const std::exception& e) {
    refusal = e.what();
  }
  std::printf("%s\t%s\t%s\n", one.layer.c_str(), name.c_str(), refusal.c_str());
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  int number = 0;
  for (const auto& cases : {&testing::onnx_layers, &testing::onnx_ops})
    for (const testing::OnnxCase& one : cases()) export_case(one, arguments[1], number++);
}
