// Convolutions: by cuDNN where it has a plan, otherwise by im2col and products; and per-sample
// weight gradients.
#pragma once

#include <optional>

#include "kernels/cuda/copy_fill.h"
#include "kernels/cuda/cuda_per_sample.h"
#include "kernels/cuda/cudnn/cudnn_dispatch.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/scratch.h"
#include "kernels/cuda/unfold.h"

namespace sotto {

// y[n] = (rows[n], grads[n], inputs[n])
struct WriteNorms {
  const double *rows, *grads, *inputs;
  double* y;
  HD void operator()(std::int64_t n) const {
    y[3 * n] = rows[n];
    y[3 * n + 1] = grads[n];
    y[3 * n + 2] = inputs[n];
  }
};

// y[n] = the squared norm of one sample, of any strides.
struct SquaredNorm {
  AxisList axes;  // the elements of one sample
  View x;
  double* y;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t n) const {
    const double sum = team_sum(team, axes.numel(), [&](std::int64_t i) {
      const double value = load_as<double>(x.data, x.dtype, n * x.stride[0] + axes.offset(i));
      return value * value;
    });
    if (team.rank() == 0) y[n] = sum;
  }
};

inline AxisList sample_axes(const View& x) {
  View one = x, sum = x;
  one.size[0] = 1;
  std::fill(sum.size, sum.size + sum.rank, 1);
  return ReductionPlan(one, sum, TermOrder::memory).reduced;
}

// y[n] = |x[n]|^2, in packs where samples lie without gaps.
template <class Exec>
void squared_norms(const Exec& exec, const View& x, double* y) {
  const std::int64_t samples = x.size[0], each = x.numel() / samples;
  if (!x.contiguous() && !is_channels_last(x))
    return exec.for_each_team(samples, each, SquaredNorm{sample_axes(x), x, y});
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    dot_rows(exec, samples, each, x.as<const T>(), x.as<const T>(), y);
  });
}

// Images [n, c, d, h, w] as a matrix [n, pixels, c]: their own memory if they are channels-last,
// else a copy, which load() fills and store() writes back.
class ImageRows {
 public:
  ImageRows(Device device, const View& x) : image_(x), rows_(x) {
    if (!is_channels_last(x)) {
      copy_.emplace(device, bytes_of(x.dtype, x.numel()));
      rows_.data = copy_->data();
    }
    const std::int64_t pixels = x.size[2] * x.size[3] * x.size[4], c = x.size[1];
    const std::int64_t strides[] = {pixels * c, 1, x.size[3] * x.size[4] * c, x.size[4] * c, c};
    std::copy_n(strides, 5, rows_.stride);
  }
  template <class B>
  void load(B& backend) const {
    if (copy_) backend.copy(image_, rows_);
  }
  template <class B>
  void store(B& backend) const {
    if (copy_) backend.copy(rows_, image_);
  }
  // Channels first .. first + count - 1.
  View matrix(std::int64_t first, std::int64_t count) const {
    const std::int64_t c = rows_.size[1];
    char* data = static_cast<char*>(rows_.data) + bytes_of(rows_.dtype, first);
    return {data,
            rows_.dtype,
            3,
            {rows_.size[0], rows_.numel() / std::max<std::int64_t>(1, rows_.size[0] * c), count},
            {rows_.stride[0], c, 1}};
  }

 private:
  View image_, rows_;
  std::optional<Scratch<char>> copy_;
};

// Weights of any strides, row-major: their own memory or a copy, which load() fills.
class RowMajor {
 public:
  RowMajor(Device device, const View& w) : from_(w), rows_(w) {
    if (w.contiguous()) return;
    copy_.emplace(device, bytes_of(w.dtype, w.numel()));
    rows_.data = copy_->data();
    std::int64_t stride = 1;
    for (int i = w.rank - 1; i >= 0; --i) {
      rows_.stride[i] = stride;
      stride *= w.size[i];
    }
  }
  template <class B>
  void load(B& backend) const {
    if (copy_) backend.copy(from_, rows_);
  }
  const View& view() const { return rows_; }

 private:
  View from_, rows_;
  std::optional<Scratch<char>> copy_;
};

// Divides a batch into chunks whose patches fit in the scratch memory, and a product into groups.
struct PatchPlan {
  Geometry g;
  Dtype dtype;
  std::int64_t max_bytes;               // limit of the scratch, unless one sample needs more
  std::int64_t materialized_bytes = 0;  // needed per sample besides its patches

  std::int64_t columns() const { return g.channels * g.window.positions(); }
  std::int64_t sample_elements() const { return g.positions() * columns(); }
  std::int64_t samples_at_once() const {
    const std::int64_t one =
        std::max<std::int64_t>(1, bytes_of(dtype, sample_elements()) + materialized_bytes);
    return std::clamp<std::int64_t>(max_bytes / one, 1, std::max<std::int64_t>(1, g.samples));
  }
  // The patches of a group: [samples, positions, taps of the group].
  View patches(char* data, std::int64_t samples, std::int64_t group) const {
    return {data + bytes_of(dtype, group * g.taps()),
            dtype,
            3,
            {samples, g.positions(), g.taps()},
            {sample_elements(), columns(), 1}};
  }
  // The part of weights [o, taps] that belongs to a group.
  View weights(const View& w, std::int64_t group) const {
    return {w.as<char>() + bytes_of(w.dtype, group * g.group_outputs() * g.taps()),
            w.dtype,
            2,
            {g.group_outputs(), g.taps()},
            {g.taps(), 1}};
  }
};

// Joins axis 0 (samples) with axis 1, for samples that follow each other.
inline View joined(const View& x) {
  return {x.data, x.dtype, 2, {x.size[0] * x.size[1], x.size[2]}, {x.stride[1], x.stride[2]}};
}

// A matrix repeated for every sample; a vector repeated for every position.
inline View over_samples(const View& x, std::int64_t samples) {
  return {x.data, x.dtype, 3, {samples, x.size[0], x.size[1]}, {0, x.stride[0], x.stride[1]}};
}
inline View repeated(const View& x, std::int64_t samples, std::int64_t positions) {
  return {x.data, x.dtype, 3, {samples, positions, x.size[0]}, {0, 0, x.stride[0]}};
}

// One number per channel, repeated at every pixel of the images.
inline View for_channels(const View& numbers, const View& images) {
  View y = images;
  y.data = numbers.data;
  y.dtype = numbers.dtype;
  std::fill(y.stride, y.stride + y.rank, 0);
  y.stride[1] = numbers.stride[0];
  return y;
}

// Calls f(first sample, count) for each chunk of samples.
template <class F>
void for_each_chunk(const PatchPlan& plan, F&& f) {
  const std::int64_t step = plan.samples_at_once();
  for (std::int64_t n = 0; n < plan.g.samples; n += step) f(n, std::min(step, plan.g.samples - n));
}

template <class Exec>
void DeviceBackend<Exec>::unfold(View x, const Window& window, View patches) {
  const Exec exec = execution("unfold", {&x, &patches});
  Geometry g(x, x, window);
  for (int axis = 0; axis < 3; ++axis) g.out[axis] = window.output_size(axis, g.in[axis]);
  unfold_into(exec, g, x, patches.data);
}

template <class Exec>
void DeviceBackend<Exec>::conv(View x, View w, View bias, const Window& window, View y) {
  const Exec exec = execution("conv", {&x, &w, &bias, &y});
  const PatchPlan plan{Geometry(x, y, window), x.dtype, exec.scratch_bytes()};
  if (y.numel() == 0) return;
  if (x.numel() > 0 &&
      conv_by_library(*this, exec, {ConvPass::forward, x, w, y, window, exec.tf32()})) {
    if (bias.data) axpby(1, for_channels(bias, y), 1, y);
    return;
  }
  const RowMajor weights(exec.device(), w);
  weights.load(*this);
  const Scratch<char> patches(exec.device(),
                              bytes_of(x.dtype, plan.samples_at_once() * plan.sample_elements()));
  for_each_chunk(plan, [&](std::int64_t first, std::int64_t count) {
    const Geometry g = of_samples(plan.g, count);
    const ImageRows out(exec.device(), samples_of(y, first, count));
    char* const from = patches_of(exec, g, samples_of(x, first, count), patches.data());
    if (bias.data) copy(repeated(bias, count, g.positions()), out.matrix(0, g.outputs));
    for (std::int64_t group = 0; group < window.groups; ++group) {
      exec.gemm(plan.patches(from, count, group),
                over_samples(transposed(plan.weights(weights.view(), group)), count),
                bias.data ? 1 : 0, out.matrix(group * g.group_outputs(), g.group_outputs()));
    }
    out.store(*this);
  });
}

template <class Exec>
void DeviceBackend<Exec>::conv_data(View dy, View w, const Window& window, View dx) {
  const Exec exec = execution("conv_data", {&dy, &w, &dx});
  const PatchPlan plan{Geometry(dx, dy, window), dy.dtype, exec.scratch_bytes()};
  if (dx.numel() == 0) return;
  if (dy.numel() > 0 &&
      conv_by_library(*this, exec, {ConvPass::data, dx, w, dy, window, exec.tf32()}))
    return;
  const RowMajor weights(exec.device(), w);
  weights.load(*this);
  const Scratch<char> patches(exec.device(),
                              bytes_of(dy.dtype, plan.samples_at_once() * plan.sample_elements()));
  for_each_chunk(plan, [&](std::int64_t first, std::int64_t count) {
    const Geometry g = of_samples(plan.g, count);
    const ImageRows in(exec.device(), samples_of(dy, first, count));
    in.load(*this);
    for (std::int64_t group = 0; group < window.groups; ++group) {
      exec.gemm(in.matrix(group * g.group_outputs(), g.group_outputs()),
                over_samples(plan.weights(weights.view(), group), count), 0,
                plan.patches(patches.data(), count, group));
    }
    const View out = samples_of(dx, first, count);
    dispatch_float(dx.dtype, [&]<class T>(std::type_identity<T>) {
      exec.for_each(out.numel(), Fold<T>{g, reinterpret_cast<const T*>(patches.data()), out});
    });
  });
}

// The sum is in the accumulation type, so that the division into chunks does not round it.
template <class Exec>
void DeviceBackend<Exec>::conv_weight(View dy, View x, const Window& window, double beta, View dw) {
  const Exec exec = execution("conv_weight", {&dy, &x, &dw});
  const PatchPlan plan{Geometry(x, dy, window), x.dtype, exec.scratch_bytes()};
  if (dw.numel() == 0) return;
  // cuDNN may not use TF32 here: like norms, sums over private samples are never rounded to 11
  // bits.
  if (x.numel() > 0 && dy.numel() > 0 &&
      conv_weight_by_library(*this, exec, {ConvPass::weight, x, dw, dy, window, false}, beta))
    return;
  with_arithmetic(x.dtype, [&](auto type) {
    const Scratch<decltype(type)> sums(exec.device(), dw.numel());
    const View flat = scratch_view(sums, {dw.numel()});
    const Scratch<char> patches(exec.device(),
                                bytes_of(x.dtype, plan.samples_at_once() * plan.sample_elements()));
    fill(0, flat);
    for_each_chunk(plan, [&](std::int64_t first, std::int64_t count) {
      const Geometry g = of_samples(plan.g, count);
      const ImageRows grads(exec.device(), samples_of(dy, first, count));
      grads.load(*this);
      char* const from = patches_of(exec, g, samples_of(x, first, count), patches.data());
      for (std::int64_t group = 0; group < window.groups; ++group) {
        const View b = grads.matrix(group * g.group_outputs(), g.group_outputs());
        exec.gemm(transposed(joined(b)), joined(plan.patches(from, count, group)), 1,
                  plan.weights(flat, group));
      }
    });
    axpby(1, flat, beta, {dw.data, dw.dtype, 1, {dw.numel()}, {1}});
  });
}

// rows [count, o, taps]: one weight gradient per sample, in the dtype of `rows`.
template <class Exec>
void weight_rows_into(DeviceBackend<Exec>& backend, const Exec& exec, const PatchPlan& plan,
                      const std::array<View, 2>& dy_and_x, char* patches, View rows) {
  const std::int64_t count = dy_and_x[0].size[0];
  const Geometry g = of_samples(plan.g, count);
  const ImageRows grads(exec.device(), dy_and_x[0]);
  grads.load(backend);
  char* const from = patches_of(exec, g, dy_and_x[1], patches);
  for (std::int64_t group = 0; group < g.window.groups; ++group) {
    View c = plan.weights(rows, group);
    c = {c.data, c.dtype, 3, {count, c.size[0], c.size[1]}, {g.outputs * g.taps(), g.taps(), 1}};
    exec.gemm(transposed(grads.matrix(group * g.group_outputs(), g.group_outputs())),
              plan.patches(from, count, group), 0, c);
  }
}

// y [n, 3]: the squared norms of the weight gradients, of dy and of x.
template <class Exec>
void write_norms(const Exec& exec, View dy, View x, const double* of_rows, View y) {
  const std::int64_t samples = y.size[0];
  const Scratch<double> grads(exec.device(), samples), inputs(exec.device(), samples);
  squared_norms(exec, dy, grads.data());
  squared_norms(exec, x, inputs.data());
  exec.for_each(samples, WriteNorms{of_rows, grads.data(), inputs.data(), y.as<double>()});
}

template <class Exec>
void DeviceBackend<Exec>::conv_weight_rows(View dy, View x, const Window& window, View dw,
                                           View norms) {
  const Exec exec = execution("conv_weight_rows", {&dy, &x, &dw, &norms});
  const PatchPlan plan{Geometry(x, dy, window), x.dtype, exec.scratch_bytes()};
  if (dw.numel() == 0) return;
  const Scratch<char> patches(exec.device(),
                              bytes_of(x.dtype, plan.samples_at_once() * plan.sample_elements()));
  for_each_chunk(plan, [&](std::int64_t first, std::int64_t count) {
    weight_rows_into(*this, exec, plan, {samples_of(dy, first, count), samples_of(x, first, count)},
                     patches.data(), samples_of(dw, first, count));
  });
  if (!norms.data) return;
  const Scratch<double> of_rows(exec.device(), dw.size[0]);
  with_arithmetic(dw.dtype, [&](auto type) {
    const auto* rows = dw.as<const decltype(type)>();
    dot_rows(exec, dw.size[0], dw.numel() / dw.size[0], rows, rows, of_rows.data());
  });
  write_norms(exec, dy, x, of_rows.data(), norms);
}

template <class Exec>
void DeviceBackend<Exec>::conv_weight_norms(View dy, View x, const Window& window, View y) {
  const Exec exec = execution("conv_weight_norms", {&dy, &x, &y});
  const Geometry all(x, dy, window);
  const std::int64_t size = all.outputs * all.taps();
  const Dtype sums = x.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  const PatchPlan plan{all, x.dtype, exec.scratch_bytes(), bytes_of(sums, size)};
  const std::int64_t step = plan.samples_at_once();
  if (plan.g.samples == 0) return;
  const Scratch<double> norms(exec.device(), plan.g.samples);
  with_arithmetic(x.dtype, [&](auto type) {
    const Scratch<decltype(type)> rows(exec.device(), step * size);
    const Scratch<char> patches(exec.device(), bytes_of(x.dtype, step * plan.sample_elements()));
    for_each_chunk(plan, [&](std::int64_t first, std::int64_t count) {
      weight_rows_into(*this, exec, plan,
                       {samples_of(dy, first, count), samples_of(x, first, count)}, patches.data(),
                       scratch_view(rows, {count, size}));
      dot_rows(exec, count, size, rows.data(), rows.data(), norms.data() + first);
    });
  });
  write_norms(exec, dy, x, norms.data(), y);
}

}  // namespace sotto
