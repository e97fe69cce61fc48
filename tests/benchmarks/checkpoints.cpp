// Peak bytes of a step with and without activation checkpoints, ordinary and private, for the
// tables of docs/appendix/memory-notes.md. Bytes are counted and do not depend on the machine.
#include <cstdio>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/checkpointing/sequential_checkpoints.h"
#include "nn/init.h"
#include "nn/layers.h"

using namespace sotto;

namespace {

constexpr double mebibyte = 1 << 20;

nn::Sequential convolutions() {
  nn::Sequential model{nn::Conv2d(3, 16, 3, {.padding = {1}})};
  for (int i = 0; i < 16; ++i) {
    model.add(nn::Conv2d(16, 16, 3, {.padding = {1}}));
    model.add(nn::GroupNorm(4, 16));
    model.add(nn::Gelu());
  }
  return model;
}

nn::Sequential transformer() {
  nn::Sequential model;
  for (int i = 0; i < 16; ++i) {
    model.add(nn::TransformerEncoderLayer(
        96, 4, {.dim_feedforward = 384, .dropout = 0.1, .batch_first = true}));
  }
  return model;
}

enum class Step { ordinary, one_pass, by_layer, two_passes };

double peak(nn::Sequential& model, const Tensor& x, Step step) {
  std::vector<ClipGroup> groups = step == Step::by_layer ? layer_groups(model.named_parameters(), 1)
                                                         : flat_group(model.parameters(), 1);
  Clipper clipper(groups, {}, step == Step::two_passes ? ClipPasses::two : ClipPasses::one);
  SumSink sink;
  Tape tape({.private_data = step != Step::ordinary});
  Allocator& memory = allocator(x.device());
  const std::size_t before = memory.statistics().current;
  memory.reset_peak();
  const Var loss = mean_per_sample(square(model(tape.input(x))));
  if (step == Step::ordinary) {
    tape.backward(loss, sink);
  } else {
    clipper.add(tape, loss);
  }
  return static_cast<double>(memory.statistics().peak - before) / mebibyte;
}

void print_row(const std::string& setting, nn::Sequential& model, const Tensor& x) {
  fmt::print("| {} |", setting);
  for (const Step step : {Step::ordinary, Step::two_passes, Step::by_layer, Step::one_pass})
    fmt::print(" {:.1f} |", peak(model, x, step));
  fmt::print("\n");
  std::fflush(stdout);
}

void print_table(const char* name, nn::Sequential model, const Tensor& x) {
  fmt::print("\n{}, input {}; MiB\n", name, x.shape());
  print_row("all kept", model, x);
  const double all = peak(model, x, Step::ordinary) * mebibyte;
  for (const int n : {1, model.size() / 8, model.size() / 4}) {
    memory::checkpoint_every(model, n);
    print_row(fmt::format("every {} of {} modules", n, model.size()), model, x);
    memory::checkpoint_every(model, n, memory::BackwardPasses::two);
    print_row(fmt::format("every {}, and all once more", n), model, x);
  }
  const memory::Chain chain = memory::measured_chain(model, x);
  double work = 0;
  for (const memory::ChainBlock& block : chain) work += block.work;
  for (const double part : {0.7, 0.5, 0.35}) {
    const auto plan = memory::checkpoint_auto(model, x, static_cast<std::size_t>(part * all));
    print_row(fmt::format("auto within {:.1f}: {:.1f} expected, {:.2f} of the forward run again",
                          part * all / mebibyte, static_cast<double>(plan.peak) / mebibyte,
                          plan.work / work),
              model, x);
  }
}

}  // namespace

int main() {
  nn::manual_seed(1);
  print_table("convolutions", convolutions(), zeros({4, 3, 32, 32}));
  print_table("transformer", transformer(), zeros({4, 64, 96}));
}
