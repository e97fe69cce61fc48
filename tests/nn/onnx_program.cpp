// Our half of onnx_test.py: onnx_program FOLDER [NAME PATH ARCHITECTURE]... exports layers,
// operations, and pretrained models for the inputs in FOLDER/NAME.in. For each it writes a file
// .onnx, and inputs and our results, for two numbers of samples, to .0 and .1, as safetensors, and
// of models of tokens for shorter rows to .2 and .3. It prints a line for each: what it is, the
// file's name, and why it was refused.
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "core/io/safetensors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/export_onnx.h"
#include "nn/init.h"
#include "nn/models/architecture.h"
#include "nn/models/efficientnet.h"
#include "nn/models/pretrained.h"
#include "nn/models/wide_resnet.h"
#include "nn/predict.h"
#include "tests/support/onnx_cases.h"
#include "tests/support/op_cases.h"

using namespace sotto;

namespace {

using Inputs = std::map<std::string, Tensor>;

// The first rows of all inputs.
Inputs first_rows(Inputs inputs, std::int64_t rows) {
  for (auto& [name, x] : inputs) x = contiguous(x.slice(0, 0, rows));
  return inputs;
}

// Rows of so many tokens.
Inputs first_tokens(Inputs inputs, std::int64_t length) {
  for (auto& [name, x] : inputs) x = contiguous(x.slice(1, 0, length));
  return inputs;
}

Inputs twice(Inputs inputs) {
  for (auto& [name, x] : inputs) x = concat({x, x}, 0);
  return inputs;
}

// Examples of a model's inputs, its call, and its export.
struct Exported {
  Inputs inputs;
  std::function<Var(Tape& tape, const Inputs& inputs)> run;
  std::function<void(const Inputs& inputs, const std::string& path)> write;
};

// Our results beside their inputs.
void write_results(const Exported& one, Inputs inputs, const std::string& path) {
  Tape tape({.training = false});
  const Tensor y = one.run(tape, inputs).value();
  inputs["output"] = contiguous(y);
  save_safetensors(path, {.tensors = inputs});
}

void export_all(const std::string& what, const std::string& folder, const std::string& name,
                const std::function<void(const std::string& path)>& write) {
  std::string refusal;
  try {
    write(folder + "/" + name);
  } catch (const std::exception& e) {
    refusal = e.what();
  }
  std::printf("%s\t%s\t%s\n", what.c_str(), name.c_str(), refusal.c_str());
}

void write_files(const Exported& one, const std::string& path) {
  one.write(first_rows(one.inputs, 1), path + ".onnx");
  write_results(one, one.inputs, path + ".0");
  write_results(one, twice(one.inputs), path + ".1");
}

void write_module(nn::Module& module, const Inputs& inputs, const std::string& path) {
  const std::string name = inputs.begin()->first;
  write_files({inputs, [&](Tape& tape, const Inputs& x) { return module(tape.input(x.at(name))); },
               [&](const Inputs& x, const std::string& file) {
                 nn::export_onnx(module, x.at(name), file, {{name}, "y"});
               }},
              path);
}

void write_tokens(nn::TokenModel& model, const Inputs& inputs, const std::string& path) {
  const auto given = [](const Inputs& x, const char* name) {
    const auto found = x.find(name);
    return found == x.end() ? Tensor() : found->second;
  };
  const auto examples = [given](const Inputs& x) {
    return nn::TokenExamples{x.at("input_ids"), given(x, "attention_mask"),
                             given(x, "position_ids"), given(x, "token_type_ids")};
  };
  const auto run = [&](Tape& tape, const Inputs& x) {
    const nn::TokenExamples e = examples(x);
    const auto input = [&](const Tensor& value) {
      return value.defined() ? std::optional(tape.input(value)) : std::nullopt;
    };
    return model(nn::TokenInputs{tape.input(e.ids), input(e.mask), input(e.positions),
                                 input(e.token_types)});
  };
  const auto write = [&](const Inputs& x, const std::string& file) {
    nn::export_onnx(model, examples(x), file);
  };
  const Exported one{inputs, run, write};
  write_files(one, path);
  const std::int64_t length = inputs.at("input_ids").size(1);
  write_results(one, first_tokens(inputs, length - 3), path + ".2");
  write_results(one, first_tokens(twice(inputs), 1), path + ".3");
}

void write_pretrained(const std::string& file, const std::string& architecture,
                      const std::string& path) {
  const Inputs inputs = load_safetensors(path + ".in").tensors;
  const nn::Pretrained loaded = nn::load_pretrained(file, {.architecture = architecture});
  if (inputs.contains("input_ids"))
    write_tokens(loaded.tokens(), inputs, path);
  else
    write_module(*loaded.model, inputs, path);
}

// Models of which no conformance case has a checkpoint.
void export_made(const std::string& folder) {
  nn::manual_seed(3);
  PublicRandom random(9);
  const nlohmann::json config{
      {"vocab_size", 20},        {"hidden_size", 16},
      {"num_hidden_layers", 2},  {"num_attention_heads", 2},
      {"intermediate_size", 24}, {"max_position_embeddings", 12},
      {"type_vocab_size", 1},    {"pad_token_id", 1},
      {"num_labels", 3},         {"model_type", "roberta"},
      {"layer_norm_eps", 1e-5},  {"architectures", {"RobertaForSequenceClassification"}}};
  const auto roberta = nn::architecture_named({"roberta"})->make(config, {});
  const Tensor ids = Tensor::from(
      std::vector<std::int64_t>{2, 7, 9, 4, 1, 1, 5, 3, 8, 8, 6, 2, 1, 1, 0, 4, 4, 3}, {3, 6});
  const Tensor mask = Tensor::from(
      std::vector<std::int64_t>{1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1}, {3, 6});
  export_all("model: roberta", folder, "roberta", [&](const std::string& path) {
    write_tokens(dynamic_cast<nn::TokenModel&>(*roberta),
                 {{"input_ids", ids}, {"attention_mask", mask}}, path);
  });
  const Tensor images = to_dtype(uniform_values(random, {2, 3, 33, 32}), Dtype::f32);
  const auto add = [&](const std::string& name, nn::Module& model) {
    export_all("model: " + name, folder, name, [&](const std::string& path) {
      write_module(model, {{"images", images}}, path);
    });
  };
  nn::EfficientNet efficientnet(nn::parse_efficientnet("efficientnet_lite0"));
  nn::WideResNet wide({.depth = 10, .widening = 1});
  add("efficientnet", efficientnet);
  add("wide_resnet", wide);
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2 || count % 3 != 2) return 2;
  const std::string folder = arguments[1];
  int number = 0;
  for (const auto& cases : {&testing::onnx_layers, &testing::onnx_ops}) {
    for (const testing::OnnxCase& one : cases()) {
      export_all(one.layer, folder, "case_" + std::to_string(number++),
                 [&](const std::string& path) {
                   write_module(*one.module, {{"input", one.example}}, path);
                 });
    }
  }
  export_made(folder);
  for (int i = 2; i + 2 < count; i += 3) {
    export_all("model: " + std::string(arguments[i]), folder, arguments[i],
               [&](const std::string& path) {
                 write_pretrained(arguments[i + 1], arguments[i + 2], path);
               });
  }
}
