// Prepares convolutions for the device's library: layouts, copies and chunks.
#pragma once

#include <algorithm>
#include <optional>

#include "kernels/cuda/cuda_per_sample.h"
#include "kernels/cuda/cudnn/conv_problem.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/scratch.h"

namespace sotto {

// True if both images are channels-last, false if both are row-major; nullopt otherwise.
inline std::optional<bool> channels_last(const View& x, const View& y) {
  if (is_channels_last(x) && is_channels_last(y)) return true;
  if (x.contiguous() && y.contiguous()) return false;
  return {};
}

// The bytes of `count` elements of a dtype.
inline std::int64_t bytes_of(Dtype dtype, std::int64_t count) {
  return count * static_cast<std::int64_t>(size_of(dtype));
}

// Computes y from x and w, or x from y and w, with weights of any strides. Returns false if the
// library has no plan.
template <class Exec>
bool conv_by_library(DeviceBackend<Exec>& backend, const Exec& exec, ConvProblem problem) {
  const auto last = channels_last(problem.x, problem.y);
  if (!last) return false;
  const View given = problem.w;
  const Scratch<char> copy(exec.device(), bytes_of(given.dtype, given.numel()));
  problem.x = in_order(problem.x, *last);
  problem.y = in_order(problem.y, *last);
  problem.w = in_order(given, *last);
  problem.w.data = copy.data();
  const ConvPlan* const plan = exec.conv_plan(problem);
  if (!plan) return false;
  backend.copy(given, problem.w);
  plan->run(problem.x.data, problem.w.data, problem.y.data);
  return true;
}

// True if the convolution is a matrix product: a 1 x 1 window with stride 1 and no padding.
inline bool is_product(const Window& w) {
  bool alone = w.groups == 1 && w.positions() == 1;
  for (int axis = 0; axis < 3; ++axis)
    alone = alone && w.stride[axis] == 1 && w.before[axis] == 0 && w.after[axis] == 0;
  return alone;
}

// dw = dy^T x + beta dw where is_product() and the images are channels-last, with sums in dw's
// type.
template <class Exec>
void conv_weight_product(const Exec& exec, const ConvProblem& p, double beta) {
  const std::int64_t positions = p.x.numel() / p.x.size[1];
  const auto rows = [positions](const View& x) {
    return View{x.data, x.dtype, 2, {positions, x.size[1]}, {x.size[1], 1}};
  };
  const View dy = rows(p.y);
  const View turned{dy.data, dy.dtype, 2, {dy.size[1], positions}, {1, dy.size[1]}};
  exec.gemm(turned, rows(p.x), beta,
            {p.w.data, p.w.dtype, 2, {p.w.size[0], p.w.size[1]}, {p.w.size[1], 1}});
}

// dw = the sum over samples + beta dw. If dw is f32 and the library has no plan for 16-bit images
// with an f32 result, chunks of images are converted to f32. Their products are exact in TF32 too,
// and the sums are not rounded to 16 bits.
template <class Exec>
bool conv_weight_by_library(DeviceBackend<Exec>& backend, const Exec& exec,
                            const ConvProblem& problem, double beta) {
  const View &x = problem.x, &dy = problem.y, &dw = problem.w;
  const auto last = channels_last(x, dy);
  if (!last) return false;
  if (*last && x.dtype != dw.dtype && is_product(problem.window)) {
    conv_weight_product(exec, problem, beta);
    return true;
  }
  const Scratch<char> sums(exec.device(), bytes_of(dw.dtype, dw.numel()));
  const auto part_of = [&](std::int64_t first, std::int64_t count) {
    ConvProblem part = problem;
    part.x = in_order(samples_of(x, first, count), *last);
    part.y = in_order(samples_of(dy, first, count), *last);
    part.w = in_order(dw, *last);
    part.w.data = sums.data();
    return part;
  };
  const auto run = [&](const ConvProblem& part, double beta_now) {
    exec.conv_plan(part)->run(part.x.data, part.w.data, part.y.data);
    backend.axpby(1, part.w, beta_now, dw);
  };
  const std::int64_t samples = x.size[0];
  const ConvProblem all = part_of(0, samples);
  if (exec.conv_plan(all)) {
    run(all, beta);
    return true;
  }
  if (x.dtype == dw.dtype) return false;
  const std::int64_t x_bytes = bytes_of(dw.dtype, x.numel() / samples),
                     each = x_bytes + bytes_of(dw.dtype, dy.numel() / samples);
  const std::int64_t step = std::clamp<std::int64_t>(exec.scratch_bytes() / each, 1, samples);
  const Scratch<char> wide(exec.device(), step * each);
  const auto chunk_from = [&](std::int64_t first) {
    ConvProblem part = part_of(first, std::min(step, samples - first));
    part.tf32 = true;
    part.x.dtype = part.y.dtype = dw.dtype;
    part.x.data = wide.data();
    part.y.data = wide.data() + part.x.size[0] * x_bytes;
    return part;
  };
  if (!exec.conv_plan(chunk_from(0)) || !exec.conv_plan(chunk_from((samples - 1) / step * step)))
    return false;
  for (std::int64_t first = 0; first < samples; first += step) {
    const ConvProblem part = chunk_from(first);
    backend.copy(samples_of(x, first, part.x.size[0]), part.x);
    backend.copy(samples_of(dy, first, part.y.size[0]), part.y);
    run(part, first == 0 ? beta : 1);
  }
  return true;
}

}  // namespace sotto
