// Fused attention by the device's library (cuDNN), whose kernels do not store the scores.
#pragma once

#include <algorithm>

#include "kernels/cuda/cudnn/attention_problem.h"
#include "kernels/cuda/runtime/device_backend.h"

namespace sotto {

// Samples first .. first + count - 1 of a problem.
inline AttentionProblem samples_of(AttentionProblem p, std::int64_t first, std::int64_t count) {
  for (View* view : {&p.forward.q, &p.forward.k, &p.forward.v, &p.forward.y, &p.forward.stats,
                     &p.forward.bias, &p.grad.dy, &p.grad.dq, &p.grad.dk, &p.grad.dv}) {
    if (!view->data || (view == &p.forward.bias && view->size[0] == 1)) continue;
    view->data = view->as<char>() +
                 first * view->stride[0] * static_cast<std::int64_t>(size_of(view->dtype));
    view->size[0] = count;
  }
  return p;
}

// Runs the library on chunks of samples. Its backward needs a workspace of two bytes per score,
// with the numbers of queries and keys rounded up. Returns false without any effect if it has no
// plan.
template <class Exec>
bool attention_by_library(const Exec& exec, const AttentionProblem& problem) {
  constexpr std::int64_t rounding = 128, bytes_of_score = 2;
  const auto rounded = [](std::int64_t x) { return (x + rounding - 1) / rounding * rounding; };
  const FusedAttention& f = problem.forward;
  const std::int64_t each = f.heads() * rounded(f.queries()) * rounded(f.keys()) * bytes_of_score;
  std::int64_t step = problem.backward
                          ? std::clamp<std::int64_t>(exec.scratch_bytes() / each, 1, f.samples())
                          : f.samples();
  // Stats and bias have four bytes an element: chunks of so many samples are aligned as the whole.
  if (step < f.samples() && step >= 4) step -= step % 4;
  const auto part = [&](std::int64_t first) {
    return samples_of(problem, first, std::min(step, f.samples() - first));
  };
  // The last chunk has fewer samples, and so may not be aligned.
  for (std::int64_t first = 0; first < f.samples(); first += step) {
    if (!exec.attention_plan(part(first))) return false;
  }
  for (std::int64_t first = 0; first < f.samples(); first += step) {
    const AttentionProblem some = part(first);
    exec.attention_plan(some)->run(some);
  }
  return true;
}

template <class Exec>
bool DeviceBackend<Exec>::attention(const FusedAttention& a) {
  const Exec exec = execution("attention", {&a.q, &a.k, &a.v, &a.y, &a.stats, &a.bias});
  return attention_by_library(exec, {.forward = a, .grad = {}, .backward = false});
}

template <class Exec>
bool DeviceBackend<Exec>::attention_grad(const FusedAttention& a, const FusedAttentionGrad& grad) {
  const Exec exec = execution("attention_grad", {&a.q, &a.k, &a.v, &a.y, &a.stats, &a.bias,
                                                 &grad.dy, &grad.dq, &grad.dk, &grad.dv});
  return attention_by_library(exec, {.forward = a, .grad = grad, .backward = true});
}

}  // namespace sotto
