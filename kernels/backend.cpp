#include "kernels/backend.h"

#include <cstdlib>
#include <string_view>

#include "core/cuda/cuda_library.h"
#include "core/error.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/host_device/row_arrays.h"

namespace sotto {

namespace {

Backend* engine_backend(CpuEngine engine) {
  static CpuBackend portable;
  return engine == CpuEngine::portable ? &portable : onednn_backend();
}

CpuEngine first_choice() {
  const char* asked = std::getenv("SOTTO_CPU_ENGINE");
  const std::string_view wanted = asked ? asked : "";
  check(wanted.empty() || wanted == "portable" || wanted == "onednn",
        "SOTTO_CPU_ENGINE: \"{}\" is neither portable nor onednn", wanted);
  if (wanted == "portable" || (wanted.empty() && !has_cpu_engine(CpuEngine::onednn))) {
    return CpuEngine::portable;
  }
  return CpuEngine::onednn;
}

Backend*& current() {
  static Backend* argmax = [] {
    Backend* first = engine_backend(first_choice());
    check(first != nullptr, "SOTTO_CPU_ENGINE: onednn was not built in");
    return first;
  }();
  return argmax;
}

Backend* observer = nullptr;

}  // namespace

void Backend::affine(View a, View b, View bias, View c) {
  View rows = bias;
  rows.size[0] = c.size[0];
  rows.stride[0] = 0;
  copy(rows, c);
  gemm(a, b, 1, c);
}

Backend& backend(Device device) {
  if (device.kind == DeviceKind::cuda) return cuda_runtime().backend(device.index);
  if (device != cpu) fail(fmt::format("backend: no device {}", name(device)));
  return observer ? *observer : *current();
}

void observe_cpu_backend(Backend* wanted) { observer = wanted; }

bool has_cpu_engine(CpuEngine engine) { return engine_backend(engine) != nullptr; }

void set_cpu_backend(Backend& backend) { current() = &backend; }

void set_cpu_engine(CpuEngine engine) {
  check(has_cpu_engine(engine), "set_cpu_engine: oneDNN was not built in");
  current() = engine_backend(engine);
}

void Backend::copy_all(std::span<const ArrayCopy> all, bool add) {
  for (const auto& [x, y] : all) add ? axpby(1, x, 1, y) : copy(x, y);
}

void Backend::squared_row_norms(std::span<const RowNorms> all) {
  for (const RowNorms& one : all) row_dot(one.x, one.x, one.y);
}

void Backend::add_all_rounded(std::span<const RoundedRows> all, View w) {
  for (const RoundedRows& one : all) add_rounded(one.x, w, one.spacing, one.y);
}

}  // namespace sotto
