// A library that writes, when a program ends, how often each kernel, copy and fill ran on the GPU
// and how long, by the GPU's own clock; the driver loads it:
//   CUDA_INJECTION64_PATH=libkernel_times.so KERNEL_TIMES=FILE PROGRAM
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr std::size_t buffer_size = 8u << 20;

struct Total {
  std::uint64_t count = 0, nanoseconds = 0;
};

struct Times {
  std::map<std::string, Total> totals;
  std::uint64_t first = 0, last = 0;

  void add(const std::string& name, std::uint64_t start, std::uint64_t end) {
    Total& total = totals[name];
    ++total.count;
    total.nanoseconds += end - start;
    first = first == 0 ? start : std::min(first, start);
    last = std::max(last, end);
  }
};

// Never destroyed: it is read while the program ends.
Times& times() {
  static Times* all = new Times;
  return *all;
}

void CUPTIAPI requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *size = buffer_size;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, *size));
  *max_records = 0;
}

// The names and times of a record lie at the same places in all versions of its structure since
// these.
void CUPTIAPI completed(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                        std::size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      times().add(kernel->name ? kernel->name : "?", kernel->start, kernel->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      times().add("copy of kind " + std::to_string(copy->copyKind), copy->start, copy->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      times().add("fill", fill->start, fill->end);
    }
  }
  std::free(buffer);
}

void write_times() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::vector<std::pair<std::string, Total>> rows(times().totals.begin(), times().totals.end());
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.nanoseconds > b.second.nanoseconds;
  });
  std::uint64_t all = 0;
  for (const auto& row : rows) all += row.second.nanoseconds;
  const char* path = std::getenv("KERNEL_TIMES");
  std::FILE* file = path ? std::fopen(path, "w") : stderr;
  if (!file) return std::perror(path);
  std::fprintf(
      file, "# %.0f us on the GPU, %.0f us from first to last\n# us\tcount\tus each\tname\n",
      static_cast<double>(all) / 1e3, static_cast<double>(times().last - times().first) / 1e3);
  for (const auto& [name, total] : rows) {
    const double us = static_cast<double>(total.nanoseconds) / 1e3;
    std::fprintf(file, "%.1f\t%llu\t%.2f\t%s\n", us, static_cast<unsigned long long>(total.count),
                 us / static_cast<double>(total.count), name.c_str());
  }
  if (path) std::fclose(file);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(requested, completed) != CUPTI_SUCCESS) return 1;
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET}) {
    if (const CUptiResult error = cuptiActivityEnable(kind); error != CUPTI_SUCCESS) {
      std::fprintf(stderr, "kernel_times: records of kind %d: CUPTI's error %d\n", kind, error);
    }
  }
  std::atexit(write_times);
  return 1;
}
