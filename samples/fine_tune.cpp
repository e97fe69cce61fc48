// Fine-tunes a pretrained network privately: a network that was trained on public digits learns
// from 1,000 people whether a digit is odd (docs/how-to/exchange-with-pytorch.md).
#include <cstdio>
#include <map>
#include <string>

#include <sotto/sotto.h>

using namespace sotto;

namespace {

nn::Sequential network(std::int64_t classes, bool lora = false) {
  nn::Sequential net{nn::Conv2d(1, 16, 5, {.stride = {2}}), nn::Tanh(), nn::MaxPool2d(2),
                     nn::Flatten()};
  if (lora)
    net.add(nn::LoraLinear(nn::Linear(576, 64), {.rank = 4}));  // "4.base.weight", "4.lora_a", ...
  else
    net.add(nn::Linear(576, 64));  // "4.weight", "4.bias"
  net.add(nn::Tanh());
  net.add(nn::Linear(64, classes));  // the head: "6.weight", "6.bias"
  return net;
}

// Loads and freezes the public layers, and leaves the new head as it is.
void load_public(nn::Sequential& net, bool lora) {
  std::map<std::string, Tensor> weights = nn::parameter_tensors(net);
  for (const auto& [name, tensor] : load_safetensors("public.safetensors").tensors) {
    if (name.starts_with("6.")) continue;
    weights.at(lora && name.starts_with("4.") ? "4.base." + name.substr(2) : name) = tensor;
  }
  nn::set_parameters(net, weights, "public.safetensors");
  for (int k = 0; k < (lora ? 4 : 6); ++k) net[k].freeze();
}

// Public data need no privacy.
void pretrain(const Dataset& digits) {
  nn::Sequential net = network(10);
  nn::Adam adam(net, {.learning_rate = 0.003});
  for (std::int64_t begin = 0; begin < digits.size(); begin += 100) {
    const Dataset batch = digits.slice(begin, begin + 100);
    Tape tape;
    SumSink sink;
    tape.backward(mean(cross_entropy(net(tape.input(batch.inputs)), batch.targets)), sink);
    adam.step(sink.gradients());
  }
  nn::save_module("public.safetensors", net);
}

// Even digits are of class 0, odd ones of class 1.
Dataset odd(Dataset digits) {
  auto* labels = digits.targets.data<std::int64_t>();
  for (std::int64_t k = 0; k < digits.size(); ++k) labels[k] %= 2;
  return digits;
}

double accuracy_after(nn::Sequential net, const Dataset& people, const Dataset& test) {
  nn::Sgd optimizer(net, {.learning_rate = 1});  // of the parameters that are not frozen
  const TrainOptions options{.engine = {.target_epsilon = 1, .steps = 50, .logical_batch = 250}};
  train(net, optimizer, people, Ledger(), options, nn::CrossEntropyLoss{});
  return nn::accuracy(net, test);
}

}  // namespace

int main() {
  nn::manual_seed(1);
  pretrain(make_digits(20000, /*seed=*/1));
  const Dataset people = odd(make_digits(1000, 2)), test = odd(make_digits(2000, 3));
  nn::Sequential head = network(2), low_rank = network(2, /*lora=*/true);
  load_public(head, false);
  load_public(low_rank, true);
  std::printf("from nothing   %.2f\n", accuracy_after(network(2), people, test));
  std::printf("a new head     %.2f\n", accuracy_after(std::move(head), people, test));
  std::printf("head and LoRA  %.2f\n", accuracy_after(std::move(low_rank), people, test));
}
