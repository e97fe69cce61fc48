// Inner products of per-sample gradients without materializing them, whose sums are computed in
// double, and the pieces of weighted ones.
#pragma once

#include <atomic>
#include <cmath>

#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/rowwise.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/scratch.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/host_device/fold_batch.h"
#include "kernels/host_device/gram_precision.h"

namespace sotto {

// partial[n, part] = one part of the inner product of row n.
template <class T>
struct DotRows {
  using A = acc_t<T>;
  Row<T> row;
  std::int64_t parts;
  const T *a, *b;
  double* partial;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t start = index / parts * row.count;
    const Part part(row.count / row.unit(), parts, index % parts);
    double sum = 0;
    const auto add = [&](A u, A v) { sum += static_cast<double>(u) * static_cast<double>(v); };
    row.each(team, part.first * row.unit(), part.last * row.unit(), add, a + start, b + start);
    sum = team.fold(Folding{Reduction::sum}, sum);
    if (team.rank() == 0) partial[index] = sum;
  }
};

// y[n] = the sum over parts of partial[n, part].
struct AddParts {
  std::int64_t parts;
  const double* partial;
  double* y;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t n) const {
    const double* const first = partial + n * parts;
    const double sum = team_sum(team, parts, [first](std::int64_t k) { return first[k]; });
    if (team.rank() == 0) y[n] = sum;
  }
};

// y[n] = <a[n], b[n]> for row-major [rows, k].
template <class T, class Exec>
void dot_rows(const Exec& exec, std::int64_t rows, std::int64_t k, const T* a, const T* b,
              double* y) {
  const std::int64_t parts = count_parts(k, rows, busy_teams, team_work);
  const Scratch<double> partial(exec.device(), parts == 1 ? 0 : rows * parts);
  exec.for_each_team(rows * parts, k / parts,
                     DotRows<T>{Row<T>(k, a, b), parts, a, b, parts == 1 ? y : partial.data()});
  if (parts > 1) exec.for_each_team(rows, parts, AddParts{parts, partial.data(), y});
}

struct Multiply {
  const double* x;
  double* y;
  HD void operator()(std::int64_t i) const { y[i] *= x[i]; }
};

// The number of earlier calls for this counter. Writes made before a call are visible after every
// later call.
HD inline std::int32_t arrive(std::int32_t* counter) {
#ifdef __CUDA_ARCH__
  __threadfence();
  const std::int32_t before = atomicAdd(counter, 1);
  __threadfence();
  return before;
#else
  return std::atomic_ref(*counter).fetch_add(1);
#endif
}

// partial[n, part] = one part of the sum of ga gb, and of its terms' absolute values; [samples,
// parts, 2]. Counters [samples] become 0.
template <class A>
struct GramParts {
  std::int64_t size, parts;
  const A *ga, *gb;
  double* partial;
  std::int32_t* counters;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t start = index / parts * size;
    const Part part(size, parts, index % parts);
    double sum = 0, magnitude = 0;
    for (std::int64_t i = part.first + team.rank(); i < part.last; i += team.size()) {
      const double term = static_cast<double>(ga[start + i]) * static_cast<double>(gb[start + i]);
      sum += term;
      magnitude += std::fabs(term);
    }
    sum = team.fold(Folding{Reduction::sum}, sum);
    magnitude = team.fold(Folding{Reduction::sum}, magnitude);
    if (team.rank() != 0) return;
    partial[2 * index] = sum;
    partial[2 * index + 1] = magnitude;
    if (index % parts == 0) counters[index / parts] = 0;
  }
};

// The Gram sums of samples, from their parts.
struct GramSums {
  std::int64_t parts;
  const double* partial;

  struct Sum {
    double value;
    bool accurate;  // if not, it must be recomputed from the gradients in f64 (gram_precision.h)
  };
  template <class Team>
  HD Sum operator()(const Team& team, std::int64_t n) const {
    const double* const first = partial + 2 * n * parts;
    const double sum = team_sum(team, parts, [&](std::int64_t k) { return first[2 * k]; }),
                 magnitude =
                     team_sum(team, parts, [&](std::int64_t k) { return first[2 * k + 1]; });
    return {sum, gram_is_accurate(sum, magnitude)};
  }
};

// Factors a [samples, positions, inputs] and b [samples, positions, outputs] of gradients,
// row-major.
template <class T>
struct GradientFactors {
  const T *a, *b;
  std::int64_t positions, inputs, outputs;

  GradientFactors(const View& a, const View& b)
      : a(a.as<const T>()),
        b(b.as<const T>()),
        positions(a.size[1]),
        inputs(a.size[2]),
        outputs(b.size[2]) {}
  HD bool operator==(const GradientFactors& other) const { return a == other.a && b == other.b; }

  // The elements of a sample's gradient that a thread computes together, by their outputs and
  // inputs.
  static constexpr int side = 4;
  HD std::int64_t across() const { return (inputs + side - 1) / side; }
  HD std::int64_t tiles() const { return (outputs + side - 1) / side * across(); }
  // y[j, k] = sum_t b[n, t, o + j] a[n, t, i + k] in f64, zero past the edges.
  HD void tile(std::int64_t n, std::int64_t index, double (&y)[side][side]) const {
    const std::int64_t o = index / across() * side, i = index % across() * side;
    for (auto& row : y)
      for (double& sum : row) sum = 0;
    for (std::int64_t t = 0; t < positions; ++t) {
      double of_b[side], of_a[side];
      read(b, (n * positions + t) * outputs, o, outputs, of_b);
      read(a, (n * positions + t) * inputs, i, inputs, of_a);
      for (int j = 0; j < side; ++j)
        for (int k = 0; k < side; ++k) y[j][k] += of_b[j] * of_a[k];
    }
  }

 private:
  HD static void read(const T* x, std::int64_t row, std::int64_t first, std::int64_t end,
                      double (&y)[side]) {
    for (int k = 0; k < side; ++k)
      y[k] = first + k < end ? static_cast<double>(acc_t<T>(x[row + first + k])) : 0;
  }
};

// y[n] = the Gram sum or, if that is not accurate, the inner product of the sample's two weight
// gradients, which cancels linearly, whereas the Gram form cancels quadratically: a team for each
// part of its tiles, and the last team to arrive adds the parts, in order.
template <class T>
struct GramDots {
  GramSums grams;
  GradientFactors<T> first, second;
  std::int64_t parts;
  double* partial;  // [samples, parts]
  std::int32_t* counters;
  double* y;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t n = index / parts;
    const GramSums::Sum gram = grams(team, n);
    if (gram.accurate) {
      if (team.rank() == 0 && index % parts == 0) y[n] = gram.value;
      return;
    }
    const Part part(first.tiles(), parts, index % parts);
    const double sum = team_sum(team, part.last - part.first,
                                [&](std::int64_t k) { return product(n, part.first + k); });
    if (team.rank() != 0) return;
    partial[index] = sum;
    if (arrive(counters + n) == parts - 1) y[n] = added(partial + n * parts);
  }

 private:
  HD double added(const double* all) const {
    double sum = 0;
    for (std::int64_t k = 0; k < parts; ++k) sum += all[k];
    return sum;
  }
  // The part of the inner product that belongs to one tile.
  HD double product(std::int64_t n, std::int64_t index) const {
    constexpr int side = GradientFactors<T>::side;
    double p[side][side], q[side][side];
    first.tile(n, index, p);
    const bool square = first == second;
    if (!square) second.tile(n, index, q);
    double sum = 0;
    for (int j = 0; j < side; ++j)
      for (int k = 0; k < side; ++k) sum += p[j][k] * (square ? p[j][k] : q[j][k]);
    return sum;
  }
};

// Samples first .. first + count - 1 of a view whose axis 0 is the samples.
inline View samples_of(View x, std::int64_t first, std::int64_t count) {
  const std::int64_t offset = first * x.stride[0] * static_cast<std::int64_t>(size_of(x.dtype));
  x.data = x.as<char>() + offset;
  x.size[0] = count;
  return x;
}

// A row-major array in scratch memory.
template <class A>
View scratch_view(const Scratch<A>& scratch, std::initializer_list<std::int64_t> sizes) {
  View y{scratch.data(), dtype_of<A>(), static_cast<int>(sizes.size()), {}, {}};
  std::copy(sizes.begin(), sizes.end(), y.size);
  std::int64_t stride = 1;
  for (int i = y.rank - 1; i >= 0; --i) {
    y.stride[i] = stride;
    stride *= y.size[i];
  }
  return y;
}

// gram_dot for a chunk of samples that fits in the scratch memory.
template <class T, class Exec>
void gram_dot_of(const Exec& exec, View a1, View b1, View a2, View b2, View y) {
  using A = acc_t<T>;
  const std::int64_t samples = a1.size[0], s = a1.size[1], t = a2.size[1];
  const Scratch<A> ga(exec.device(), samples * s * t), gb(exec.device(), samples * s * t);
  exec.gemm(a1, transposed(a2), 0, scratch_view(ga, {samples, s, t}));
  exec.gemm(b1, transposed(b2), 0, scratch_view(gb, {samples, s, t}));
  const std::int64_t parts = count_parts(s * t, samples, busy_teams, team_work);
  const Scratch<double> partial(exec.device(), 2 * samples * parts);
  const Scratch<std::int32_t> counters(exec.device(), samples);
  exec.for_each_team(
      samples * parts, s * t / parts,
      GramParts<A>{s * t, parts, ga.data(), gb.data(), partial.data(), counters.data()});
  const std::int64_t size = a1.size[2] * b1.size[2];
  const std::int64_t cuts = count_parts(size, samples, busy_teams, team_work);
  const Scratch<double> dots(exec.device(), samples * cuts);
  exec.for_each_team(samples * cuts, size / cuts,
                     GramDots<T>{{parts, partial.data()},
                                 {a1, b1},
                                 {a2, b2},
                                 cuts,
                                 dots.data(),
                                 counters.data(),
                                 y.as<double>()});
}

// partial[n, s] = the terms of onehot_dot with position s of the first factor.
template <class T>
struct OnehotTerms {
  View ids1, b1, ids2, b2;
  double* partial;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    using A = acc_t<T>;
    const std::int64_t positions = ids2.size[1], width = b1.size[2], n = index / ids1.size[1];
    const std::int64_t id = ids1.as<const std::int64_t>()[index];
    const std::int64_t* const others = ids2.as<const std::int64_t>() + n * positions;
    double sum = 0;
    for (std::int64_t t = 0; t < positions && id >= 0; ++t) {
      if (others[t] != id) continue;
      const T* const p = b1.as<const T>() + (b1.size[1] == 1 ? n : index) * width;
      const T* const q = b2.as<const T>() + (b2.size[1] == 1 ? n : n * positions + t) * width;
      for (std::int64_t i = team.rank(); i < width; i += team.size()) {
        sum += static_cast<double>(A(p[i])) * static_cast<double>(A(q[i]));
      }
    }
    sum = team.fold(Folding{Reduction::sum}, sum);
    if (team.rank() == 0) partial[index] = sum;
  }
};

// The bf16 pieces of `lanes` neighbours in one row.
template <int lanes>
struct Bf16x2Row {
  using Values = Pack<std::uint16_t, lanes>;
  std::int64_t count, width;
  const std::uint16_t* x;
  const double* w;
  std::uint16_t* pieces;
  HD void operator()(std::int64_t pack) const {
    const std::int64_t at = pack * lanes;
    const double weight = w[at / width];
    const Values values = *reinterpret_cast<const Values*>(x + at);
    Values y[float_bf16x2];
    for (int lane = 0; lane < lanes; ++lane) {
      const Bf16x2 of = scale_to_bf16x2(weight, std::bit_cast<bf16>(values.value[lane]));
      for (int p = 0; p < float_bf16x2; ++p) y[p].value[lane] = of.piece[p].bits;
    }
    for (int p = 0; p < float_bf16x2; ++p)
      *reinterpret_cast<Values*>(pieces + p * count + at) = y[p];
  }
};

template <class Exec>
void DeviceBackend<Exec>::row_dot(View a, View b, View y) {
  const Exec exec = execution("row_dot", {&a, &b, &y});
  if (a.size[0] == 0) return;
  dispatch_float(a.dtype, [&]<class T>(std::type_identity<T>) {
    dot_rows(exec, a.size[0], a.size[1], a.as<const T>(), b.as<const T>(), y.as<double>());
  });
}

template <class Exec>
void DeviceBackend<Exec>::gram_dot(View a1, View b1, View a2, View b2, View y) {
  const Exec exec = execution("gram_dot", {&a1, &b1, &a2, &b2, &y});
  const std::int64_t samples = a1.size[0], s = a1.size[1], t = a2.size[1];
  if (samples == 0) return;
  dispatch_float(a1.dtype, [&]<class T>(std::type_identity<T>) {
    if (s == 1 && t == 1) {
      const Scratch<double> dots(exec.device(), samples);
      dot_rows(exec, samples, a1.size[2], a1.as<const T>(), a2.as<const T>(), dots.data());
      dot_rows(exec, samples, b1.size[2], b1.as<const T>(), b2.as<const T>(), y.as<double>());
      return exec.for_each(samples, Multiply{dots.data(), y.as<double>()});
    }
    using A = acc_t<T>;
    const auto sample_bytes = 2 * s * t * static_cast<std::int64_t>(sizeof(A));
    const std::int64_t step =
        std::max<std::int64_t>(1, exec.scratch_bytes() / std::max<std::int64_t>(1, sample_bytes));
    for (std::int64_t n = 0; n < samples; n += step) {
      const std::int64_t count = std::min(step, samples - n);
      const auto some = [&](const View& v) { return samples_of(v, n, count); };
      gram_dot_of<T>(exec, some(a1), some(b1), some(a2), some(b2), some(y));
    }
  });
}

template <class Exec>
void DeviceBackend<Exec>::onehot_dot(View ids1, View b1, View ids2, View b2, View y) {
  const Exec exec = execution("onehot_dot", {&ids1, &b1, &ids2, &b2, &y});
  const std::int64_t samples = ids1.size[0], positions = ids1.size[1];
  if (samples == 0) return;
  const Scratch<double> partial(exec.device(), samples * positions);
  dispatch_float(b1.dtype, [&]<class T>(std::type_identity<T>) {
    exec.for_each_team(samples * positions, b1.size[2],
                       OnehotTerms<T>{ids1, b1, ids2, b2, partial.data()});
  });
  exec.for_each_team(samples, positions, AddParts{positions, partial.data(), y.as<double>()});
}

template <class Exec>
void DeviceBackend<Exec>::scale_to_bf16x2(View x, View w, View pieces) {
  const Exec exec = execution("weighted_pieces", {&x, &w, &pieces});
  const std::int64_t width = x.size[1], count = x.numel();
  const bool packs = width % column_lanes<bf16> == 0 && aligned(x.data) && aligned(pieces.data);
  with_columns<bf16>(packs, [&](auto lanes) {
    exec.for_each(count / lanes,
                  Bf16x2Row<lanes>{count, width, x.as<const std::uint16_t>(), w.as<const double>(),
                                   pieces.as<std::uint16_t>()});
  });
}

}  // namespace sotto
