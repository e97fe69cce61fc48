// Normalisation; sums are computed in double. A task goes through some groups of consecutive blocks
// of a sample, so that its sums depend on no other sample.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/per_sample/dot.h"
#include "kernels/host_device/norm_formulas.h"

namespace sotto {

namespace {

// Where tasks begin and end.
struct Tasks {
  explicit Tasks(const View& x)
      : samples(x.size[0]), blocks(x.size[1]), groups(x.size[2]), group(x.size[3]) {
    const std::int64_t block = groups * group * x.size[4];
    constexpr std::int64_t elements = 1 << 16, cache_lines_of_channels = 64;
    blocks_each = std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, block));
    groups_each =
        channels_last(x) ? (cache_lines_of_channels + group - 1) / group : std::int64_t{1};
    parts = (blocks + blocks_each - 1) / blocks_each;
    ranges = (groups + groups_each - 1) / groups_each;
    work = std::min(blocks_each, blocks) * std::min(groups_each, groups) * group * x.size[4];
  }
  std::int64_t count() const { return samples * parts * ranges; }
  std::int64_t channels() const { return groups * group; }

  std::int64_t samples, blocks, groups, group;
  std::int64_t blocks_each, groups_each, parts, ranges, work;
};

// y[i] = value(i), which may read y[i].
template <class T, class F>
void write_line(T* y, std::int64_t length, F value) {
  constexpr std::int64_t most = 256;
  acc_t<T> values[most];
  for (std::int64_t from = 0; from < length; from += most) {
    const std::int64_t some = std::min(most, length - from);
    for (std::int64_t i = 0; i < some; ++i) values[i] = value(from + i);
    for (std::int64_t i = 0; i < some; ++i) y[from + i] = T(values[i]);
  }
}

// One of them.
struct Task {
  Task(const Tasks& all, const View& x, std::int64_t index)
      : part(index / all.ranges),
        sample(part / all.parts),
        first_block(part % all.parts * all.blocks_each),
        last_block(std::min(all.blocks, first_block + all.blocks_each)),
        first_group(index % all.ranges * all.groups_each),
        groups(std::min(all.groups - first_group, all.groups_each)),
        group(all.group),
        first_channel(first_group * group),
        channels(groups * group),
        places(x.size[4]),
        pixel(x.stride[4]),
        by_channel(!channels_last(x)) {}

  // The task's first element in a block of an array.
  std::int64_t offset(const View& x, std::int64_t block) const {
    return sample * x.stride[0] + block * x.stride[1] + first_group * x.stride[2];
  }
  NormStats* stats(const View& all, std::int64_t block) const {
    return reinterpret_cast<NormStats*>(all.as<double>() + offset(all, block));
  }
  // The first element of a group.
  std::int64_t group_start(std::int64_t k) const { return k * group * (by_channel ? places : 1); }
  double count() const { return static_cast<double>(group * places); }

  // a[c], b[c] = the sums over places of term(c, offset), a pair. Both memory orders add in the
  // order of sum_terms(), since a single sample may be stored in another order than its batch.
  // `lanes` has two_sums numbers for each channel.
  template <class F>
  void sum_places(F term, double* a, double* b, double* lanes) const {
    if (by_channel) {
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto at = [&](std::int64_t p) { return term(c, c * places + p); };
        a[c] = sum_terms(places, [&](std::int64_t p) { return at(p).first; });
        b[c] = sum_terms(places, [&](std::int64_t p) { return at(p).second; });
      }
      return;
    }
    std::fill_n(lanes, two_sums * channels, 0.0);
    double* const others = lanes + two_sums / 2 * channels;
    for (std::int64_t p = 0; p < places; ++p) {
      const std::int64_t lane = p % (2 * sum_lanes) * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto [first, second] = term(c, c + p * pixel);
        lanes[lane + c] += first;
        others[lane + c] += second;
      }
    }
    add_lanes(lanes, a);
    add_lanes(others, b);
  }
  static constexpr std::int64_t two_sums = 4 * sum_lanes;

  // y[c] = the sum of the channel's running sums [2 sum_lanes, channels], added as sum_terms() adds
  // its own.
  void add_lanes(double* lanes, double* y) const {
    for (std::int64_t left = sum_lanes * channels; left >= channels; left /= 2) {
      for (std::int64_t i = 0; i < left; ++i) lanes[i] += lanes[i + left];
    }
    std::copy_n(lanes, channels, y);
  }
  // y = value(c, offset), which may read y at this offset.
  template <class T, class F>
  void write(T* y, F value) const {
    for (std::int64_t line = 0; line < (by_channel ? channels : places); ++line) {
      const std::int64_t from = line * (by_channel ? places : pixel);
      if (by_channel)
        write_line(y + from, places, [&](std::int64_t i) { return value(line, from + i); });
      else
        write_line(y + from, channels, [&](std::int64_t i) { return value(i, from + i); });
    }
  }

  std::int64_t part, sample, first_block, last_block, first_group, groups, group, first_channel,
      channels, places, pixel;
  bool by_channel;
};

// Numbers for each of a task's channels.
template <class A>
struct PerChannel {
  std::vector<double> mean, rstd, first, second, lanes;
  std::vector<A> weight, bias;
  std::vector<NormSlope<A>> slopes;

  explicit PerChannel(std::int64_t channels)
      : mean(static_cast<std::size_t>(channels)),
        rstd(mean),
        first(mean),
        second(mean),
        lanes(mean.size() * static_cast<std::size_t>(Task::two_sums)),
        weight(mean.size()),
        bias(weight),
        slopes(mean.size()) {}

  void bring(const Task& task, const Normalization& affine) {
    const auto from = [&](const View& x, A otherwise, std::vector<A>& y) {
      if (x.data)
        std::copy_n(x.as<A>() + task.first_channel, task.channels, y.begin());
      else
        std::fill(y.begin(), y.end(), otherwise);
    };
    from(affine.weight, A(1), weight);
    from(affine.bias, A(0), bias);
  }
  void put(const Task& task, const NormStats* stats) {
    for (std::int64_t k = 0; k < task.groups; ++k) {
      std::fill_n(mean.data() + k * task.group, task.group, stats[k].mean);
      std::fill_n(rstd.data() + k * task.group, task.group, stats[k].rstd);
    }
  }
};

// z of an element.
template <class A, class T>
A normalized(const NormStats& stats, T x) {
  return static_cast<A>(stats.normalized(static_cast<double>(A(x))));
}

// Calls f(task, its numbers) for every task.
template <class A, class F>
void for_each_task(const View& x, F f) {
  const Tasks all(x);
  parallel_for(all.count(), elementwise_grain / std::max<std::int64_t>(all.work, 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 PerChannel<A> numbers(std::min(all.groups, all.groups_each) * all.group);
                 simd_dispatch_avx512([&] {
                   for (std::int64_t i = begin; i < end; ++i) f(Task(all, x, i), numbers);
                 });
               });
}

// The sums over each group of a block at `a`.
template <class T, class F>
void sum_groups(const NormRule& rule, const Task& task, const T* a, PerChannel<acc_t<T>>& numbers,
                F result) {
  const auto value = [a](std::int64_t i) { return static_cast<double>(acc_t<T>(a[i])); };
  const auto shift = [&](std::int64_t k) { return rule.centered ? value(task.group_start(k)) : 0; };
  const bool one_place = task.places == 1;
  double *const first = numbers.first.data(), *const second = numbers.second.data();
  if (!one_place) {
    double* const shifts = numbers.mean.data();
    for (std::int64_t c = 0; c < task.channels; ++c) shifts[c] = shift(c / task.group);
    task.sum_places(
        [=](std::int64_t c, std::int64_t at) {
          const double d = value(at) - shifts[c];
          return std::pair(d, d * d);
        },
        first, second, numbers.lanes.data());
  }
  for (std::int64_t k = 0; k < task.groups; ++k) {
    const double from = shift(k);
    if (one_place) {
      const auto d = [=, start = task.group_start(k)](std::int64_t i) {
        return value(start + i) - from;
      };
      result(k, NormSums{from, sum_terms(task.group, d),
                         sum_terms(task.group, [&](std::int64_t i) { return d(i) * d(i); })});
    } else {
      const auto of = [&](const double* x) {
        return sum_terms(task.group, [&](std::int64_t i) { return x[k * task.group + i]; });
      };
      result(k, NormSums{from, of(first), of(second)});
    }
  }
}

// A block of x, of its gradients, and where their sums over blocks are added up.
template <class X, class Y>
struct BlockGrads {
  const NormStats* stats;
  const X* x;
  const Y* dy;
  X* dx;                // or nullptr
  double *dy_z, *dy_1;  // for each channel: of dy z, and of dy
};

// dx of a block, from its channels' sums of dy and of dy z.
template <class X, class Y>
void write_slopes(const NormRule& rule, const Task& task, const BlockGrads<X, Y>& block,
                  PerChannel<acc_t<X>>& numbers) {
  using A = acc_t<X>;
  const A* const weight = numbers.weight.data();
  const double *const mean = numbers.mean.data(), *const rstd = numbers.rstd.data();
  NormSlope<A>* const slopes = numbers.slopes.data();
  for (std::int64_t k = 0; k < task.groups; ++k) {
    const auto weighted = [&](const std::vector<double>& sums) {
      const double* const of = sums.data() + k * task.group;
      const A* const w = weight + k * task.group;
      return sum_terms(task.group,
                       [=](std::int64_t i) { return static_cast<double>(w[i]) * of[i]; });
    };
    const NormSlope<A> slope(rule, weighted(numbers.first), weighted(numbers.second), task.count());
    std::fill_n(slopes + k * task.group, task.group, slope);
  }
  task.write(block.dx, [=, x = block.x, dy = block.dy](std::int64_t c, std::int64_t at) {
    const A z = normalized<A>({mean[c], rstd[c]}, x[at]);
    return static_cast<A>(rstd[c]) * slopes[c].off(A(dy[at]) * weight[c], z);
  });
}

template <class X, class Y>
void places_grad(const NormRule& rule, const Task& task, const BlockGrads<X, Y>& block,
                 PerChannel<acc_t<X>>& numbers) {
  using A = acc_t<X>;
  numbers.put(task, block.stats);
  const double *const mean = numbers.mean.data(), *const rstd = numbers.rstd.data();
  double *const sums = numbers.first.data(), *const products = numbers.second.data();
  task.sum_places(
      [=, x = block.x, dy = block.dy](std::int64_t c, std::int64_t at) {
        const double slope = static_cast<double>(A(dy[at]));
        const NormStats own{mean[c], rstd[c]};
        return std::pair(slope, slope * own.normalized(static_cast<double>(A(x[at]))));
      },
      sums, products, numbers.lanes.data());
  for (std::int64_t c = 0; c < task.channels; ++c) {
    block.dy_1[c] += sums[c];
    block.dy_z[c] += products[c];
  }
  if (block.dx) write_slopes(rule, task, block, numbers);
}

// Adds the sums of a block with one pixel: its elements themselves.
template <class X, class Y>
void row_grad(const NormRule& rule, const Task& task, const BlockGrads<X, Y>& block,
              PerChannel<acc_t<X>>& numbers) {
  using A = acc_t<X>;
  for (std::int64_t k = 0; k < task.groups; ++k) {
    const NormStats own = block.stats[k];
    const std::int64_t first = k * task.group, count = task.group;
    const X* const x = block.x + first;
    const Y* const dy = block.dy + first;
    const A* const weight = numbers.weight.data() + first;
    double *const slopes = numbers.first.data(), *const products = numbers.second.data();
    for (std::int64_t i = 0; i < count; ++i) {
      slopes[i] = static_cast<double>(A(dy[i]));
      products[i] = slopes[i] * own.normalized(static_cast<double>(A(x[i])));
    }
    for (std::int64_t i = 0; i < count; ++i) block.dy_z[first + i] += products[i];
    for (std::int64_t i = 0; i < count; ++i) block.dy_1[first + i] += slopes[i];
    if (!block.dx) continue;
    const auto weighted = [&](const double* terms) {
      return sum_terms(count,
                       [=](std::int64_t i) { return static_cast<double>(weight[i]) * terms[i]; });
    };
    const NormSlope<A> of(rule, weighted(slopes), weighted(products), task.count());
    write_line(block.dx + first, count, [=](std::int64_t i) {
      const A slope = static_cast<A>(slopes[i]) * weight[i];
      return static_cast<A>(own.rstd) * of.off(slope, normalized<A>(own, x[i]));
    });
  }
}

// Sums the parts [n, parts, 2, channels] of the gradients of weights and biases, in order.
template <class A>
void add_parts(const Tasks& tasks, const std::vector<double>& partial,
               const NormalizationGrads& grads) {
  const std::int64_t width = tasks.channels();
  const auto add = [&](std::int64_t which, const View& y) {
    if (!y.data) return;
    for (std::int64_t i = 0; i < tasks.samples * width; ++i) {
      const double* const first =
          partial.data() + (i / width * tasks.parts * 2 + which) * width + i % width;
      double sum = 0;
      for (std::int64_t part = 0; part < tasks.parts; ++part) sum += first[part * 2 * width];
      y.as<A>()[i] = static_cast<A>(sum);
    }
  };
  add(0, grads.dbias);
  add(1, grads.dweight);
}

}  // namespace

void CpuBackend::normalize(const Normalization& how, View x, View stats, View y) {
  if (x.numel() == 0) return;
  dispatch_norm(
      x.dtype, y.dtype, [&]<class X, class Y>(std::type_identity<X>, std::type_identity<Y>) {
        using A = acc_t<X>;
        for_each_task<A>(x, [&](const Task& task, PerChannel<A>& numbers) {
          numbers.bring(task, how);
          for (std::int64_t block = task.first_block; block < task.last_block; ++block) {
            const X* const a = x.as<X>() + task.offset(x, block);
            NormStats* const own = task.stats(stats, block);
            sum_groups(how.rule, task, a, numbers, [&](std::int64_t k, const NormSums& sums) {
              own[k] = sums.stats(how.rule, task.count());
            });
            numbers.put(task, own);
            const double *const mean = numbers.mean.data(), *const rstd = numbers.rstd.data();
            const A *const weight = numbers.weight.data(), *const bias = numbers.bias.data();
            task.write(y.as<Y>() + task.offset(y, block), [=](std::int64_t c, std::int64_t at) {
              return normalized<A>({mean[c], rstd[c]}, a[at]) * weight[c] + bias[c];
            });
          }
        });
      });
}

void CpuBackend::normalize_grad(const Normalization& how, View x, View stats, View dy,
                                const NormalizationGrads& grads) {
  const Tasks tasks(dy);
  const std::int64_t width = tasks.channels();
  std::vector<double> partial(static_cast<std::size_t>(tasks.samples * tasks.parts * 2 * width));
  const View dx = grads.dx;
  dispatch_norm(
      x.dtype, dy.dtype, [&]<class X, class Y>(std::type_identity<X>, std::type_identity<Y>) {
        using A = acc_t<X>;
        for_each_task<A>(dy, [&](const Task& task, PerChannel<A>& numbers) {
          numbers.bring(task, how);
          double* const sums = partial.data() + task.part * 2 * width + task.first_channel;
          for (std::int64_t at = task.first_block; at < task.last_block; ++at) {
            const BlockGrads<X, Y> block{task.stats(stats, at),
                                         x.as<X>() + task.offset(x, at),
                                         dy.as<Y>() + task.offset(dy, at),
                                         dx.data ? dx.as<X>() + task.offset(dx, at) : nullptr,
                                         sums + width,
                                         sums};
            if (task.places == 1)
              row_grad(how.rule, task, block, numbers);
            else
              places_grad(how.rule, task, block, numbers);
          }
        });
        add_parts<A>(tasks, partial, grads);
      });
}

}  // namespace sotto
