// Counts what a training step asks of a GPU: launches, waits of the host, and bytes of operands,
// for large networks in bf16, ordinary and private; and estimates from that how long a step takes.
// It needs no GPU, but a pretended one that does no work:
//   SOTTO_CUDA_LIBRARY=tests/libfake_gpu.so SOTTO_PRETENDED_DRY=1 tests/benchmarks/bench_gpu_counts
// Prints one JSON line for each network and mode.
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include <cxxabi.h>
#include <nlohmann/json.hpp>

#include "autograd/sink.h"
#include "core/devices.h"
#include "core/error.h"
#include "dp/engine/engine.h"
#include "nn/optim/optimizer.h"
#include "tests/benchmarks/sized_models.h"
#include "tests/fake_gpu/host_executor.h"
#include "tests/support/fake_gpu_counts.h"

using namespace sotto;
using nlohmann::json;

namespace {

constexpr Device gpu{DeviceKind::cuda, 0};

struct Workload {
  const char* model;
  std::int64_t batch;
};
constexpr Workload workloads[] = {
    {"gpt2-small", 32}, {"gpt2-1024", 32}, {"vit-b16", 256}, {"resnet50-224", 256}, {"wrn16", 256}};

// Peaks from the data sheets (Nvidia 2021, 2023, 2024; SXM, dense): operations in 16 bits and in
// f32, and bytes, all per second; and the number of multiprocessors.
struct Card {
  const char* name;
  double narrow, wide, bytes, processors;
};
constexpr double h100_processors = 132;
constexpr Card h100{"H100", 989e12, 67e12, 3.35e12, h100_processors};
constexpr Card cards[] = {{"A100", 312e12, 19.5e12, 2.04e12, 108},
                          h100,
                          {"H200", 989e12, 67e12, 4.8e12, h100_processors}};
// Assumed shares of the peaks, and seconds from one launch to the next.
constexpr double products_reach = 0.6, memory_reach = 0.85, launch_seconds = 2.5e-6;

// Kernels that are held up by their own instructions: bytes and operations per second of an H100,
// read off their machine code.
struct SlowKernel {
  const char* name;  // the beginning of the body's type
  double bytes, flops;
};
constexpr double unlimited = std::numeric_limits<double>::infinity();
constexpr double read_twice = 1.7e12,  // x and its slopes are read twice, and are counted once
    ragged_copies = 0.85e12,           // an element a thread, found by reciprocals
    noise = 0.54e12,                   // 0.25 ms for 2^24 draws
    rounded_products_narrow = 250e12,  // of 16 bits, and of f32: as gpu_costs.h assumes
    rounded_products_wide = 25e12;
constexpr SlowKernel slow_kernels[] = {
    {"SumPlaces", read_twice, unlimited},
    {"SumBlocks", read_twice, unlimited},
    {"StridedCopy", ragged_copies, unlimited},
    {"DecideGroup", noise, unlimited},
    {"RoundedProduct<float>", unlimited, rounded_products_wide},
    {"RoundedProduct<sotto::", unlimited, rounded_products_narrow},
};

// The name of a body's type, without its namespace.
std::string readable(const char* kernel) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(kernel, nullptr, nullptr, &status), &std::free);
  const std::string text = status == 0 ? name.get() : kernel;
  const std::string_view space = "sotto::";
  return text.starts_with(space) ? text.substr(space.size()) : text;
}

struct Rates {
  double bytes, flops;  // per second
};

// Those of the slowest of a primitive's kernels.
Rates rates_of(const Card& card, const PrimitiveWork& work) {
  Rates rates{card.bytes * memory_reach, (work.narrow ? card.narrow : card.wide) * products_reach};
  const double size = card.processors / h100_processors;
  for (const char* const kernel : work.kernels) {
    for (const SlowKernel& slow : slow_kernels) {
      if (!readable(kernel).starts_with(slow.name)) continue;
      rates.bytes = std::min(rates.bytes, slow.bytes * size);
      rates.flops = std::min(rates.flops, slow.flops * size);
    }
  }
  return rates;
}

// Each primitive takes as long as its operations or its bytes, whichever is longer, and no less
// than its launches.
double seconds_on(const Card& card, const PrimitiveWork& work) {
  const Rates rates = rates_of(card, work);
  const double roof = std::max(work.flops / rates.flops, work.bytes / rates.bytes);
  return std::max(roof, launch_seconds * static_cast<double>(work.launches));
}

// The launches, GB and milliseconds on an H100 of each primitive.
json by_primitive(const std::vector<PrimitiveWork>& all) {
  std::map<std::string, std::tuple<std::int64_t, double, double>> sums;
  for (const PrimitiveWork& work : all) {
    auto& [launches, gigabytes, milliseconds] = sums[work.name];
    launches += work.launches;
    gigabytes += work.bytes * 1e-9;
    milliseconds += seconds_on(h100, work) * 1e3;
  }
  return sums;
}

// How often each kernel of each primitive is launched.
json by_kernel(const std::vector<PrimitiveWork>& all) {
  std::map<std::string, std::int64_t> launches;
  for (const PrimitiveWork& work : all) {
    for (const char* const kernel : work.kernels)
      ++launches[std::string(work.name) + ": " + readable(kernel)];
  }
  return launches;
}

// Counts the second of two steps.
json counted(const std::function<void()>& step) {
  step();
  pretended_work()->clear();
  const PretendedCounts before = *pretended_counts();
  step();
  const PretendedCounts after = *pretended_counts();
  const std::vector<PrimitiveWork>& work = *pretended_work();
  json line{{"launches", after.launches - before.launches}, {"waits", after.waits - before.waits}};
  double bytes = 0;
  for (const PrimitiveWork& one : work) bytes += one.bytes;
  line["gigabytes"] = bytes * 1e-9;
  line["launches_gigabytes_and_ms_of"] = by_primitive(work);
  line["launches_of"] = by_kernel(work);
  for (const Card& card : cards) {
    double seconds = 0;
    for (const PrimitiveWork& one : work) seconds += seconds_on(card, one);
    line["ms"][card.name] = seconds * 1e3;
  }
  return line;
}

struct Network {
  explicit Network(const Workload& workload)
      : entry(models::entry_of_any(workload.model)),
        model(entry.make()),
        batch(workload.batch),
        optimizer(*model, {.learning_rate = 1e-4}) {
    model->to(gpu);
    const models::Examples examples = models::examples_for_timing(entry, batch);
    inputs = examples.inputs.to(gpu);
    labels = examples.labels.to(gpu);
  }
  Var losses(Tape& tape) { return entry.losses((*model)(tape.input(inputs)), labels); }

  models::Entry entry;
  std::unique_ptr<nn::Module> model;
  std::int64_t batch;
  nn::Adam optimizer;
  Tensor inputs, labels;
};

json ordinary(Network& network) {
  return counted([&] {
    Tape tape({.precision = Dtype::bf16});
    SumSink sink;
    const Var loss = network.losses(tape);
    tape.backward(loss, sink, 1.0 / static_cast<double>(network.batch));
    network.optimizer.step(sink.gradients());
  });
}

// All units are in the batch: the blocks of a sum, and so launches, depend on the units.
json with_privacy(Network& network) {
  Engine engine(*network.model, network.optimizer, network.batch, Ledger(),
                {.noise_multiplier = 1,
                 .sampling = Sampling::full_batch,
                 .logical_batch = static_cast<double>(network.batch),
                 .memory = {.physical_batch = network.batch, .precision = Dtype::bf16},
                 .passes = ClipPasses::one});
  return counted([&] {
    engine.step([&](Tape& tape, std::span<const std::int64_t>) { return network.losses(tape); });
  });
}

}  // namespace

int main() try {
  check(devices().size() > 1 && pretended_counts() && std::getenv("SOTTO_PRETENDED_DRY") != nullptr,
        "gpu_counts: needs SOTTO_CUDA_LIBRARY=libfake_gpu.so and SOTTO_PRETENDED_DRY=1");
  for (const Workload& workload : workloads) {
    Network network(workload);
    for (const bool is_private : {false, true}) {
      json line = is_private ? with_privacy(network) : ordinary(network);
      line["model"] = workload.model;
      line["batch"] = workload.batch;
      line["mode"] = is_private ? "private" : "ordinary";
      std::cout << line.dump() << std::endl;
    }
  }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
