// Counts of calls to the fake GPU (fake_gpu.cpp), and the means to make it fail.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include <dlfcn.h>

namespace sotto {

struct PretendedCounts {
  std::int64_t launches = 0;  // a CUDA graph counts as one
  std::int64_t waits = 0;     // of the host for the GPU
};

// A function of the fake GPU; nullptr if it is not loaded.
template <class Function>
Function* pretended(const char* name) {
  const char* const library = std::getenv("SOTTO_CUDA_LIBRARY");
  void* const handle = library ? dlopen(library, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  return handle ? reinterpret_cast<Function*>(dlsym(handle, name)) : nullptr;
}

// The counts since the process began; nullopt without a fake GPU.
inline std::optional<PretendedCounts> pretended_counts() {
  auto* const ask = pretended<void(PretendedCounts&)>("sotto_pretended_counts");
  if (!ask) return std::nullopt;
  PretendedCounts counts;
  ask(counts);
  return counts;
}

// The launches of work on the fake GPU.
template <class F>
std::int64_t launches_of(const F& work) {
  const std::int64_t before = pretended_counts()->launches;
  work();
  return pretended_counts()->launches - before;
}

// Runs what the fake GPU was asked for, as if it were the fastest of all; nothing without one.
inline void run_ahead(int gpu) {
  if (auto* const run = pretended<void(int)>("sotto_pretended_run")) run(gpu);
}

// What the primitives asked of a fake GPU that does no work (host_executor.h).
struct PrimitiveWork;
inline std::vector<PrimitiveWork>* pretended_work() {
  auto* const work = pretended<std::vector<PrimitiveWork>*()>("sotto_pretended_work");
  return work ? work() : nullptr;
}

// Captured work from now on drops launch number `launch`; below 0: none. Returns false without a
// fake GPU.
inline bool lose_launch(int launch) {
  auto* const lose = pretended<void(int)>("sotto_pretended_lose");
  if (lose) lose(launch);
  return lose != nullptr;
}

// Lets launches from number `first` since the process began on find no memory for their code,
// `times` times.
inline void fill_gpu(std::int64_t first, int times) {
  pretended<void(std::int64_t, int)>("sotto_pretended_fill")(first, times);
}

// Kernels of tiles do nothing from now on, or work again. Returns false without a fake GPU.
inline bool skip_tiles(bool skip) {
  auto* const skips = pretended<void(bool)>("sotto_pretended_skip_tiles");
  if (skips) skips(skip);
  return skips != nullptr;
}

// Makes launch number `number` since the process began fail with SystemFailure; below 0: none.
inline void fail_launch(std::int64_t number) {
  pretended<void(std::int64_t)>("sotto_pretended_fail")(number);
}

}  // namespace sotto
