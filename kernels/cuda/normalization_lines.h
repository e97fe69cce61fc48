// Normalisation where channels lie side by side: a thread goes through a part of the places of
// neighbouring channels, or through a part of the blocks of a sample, 16 bytes at a time where they
// are aligned.
#pragma once

#include <algorithm>

#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/reduce.h"
#include "kernels/host_device/norm_formulas.h"
#include "kernels/host_device/reciprocal.h"

namespace sotto {

// The sizes of blocks, and divisions by them.
struct NormSizes {
  std::int64_t samples, blocks, groups, group, places;
  Divisor by_blocks, by_groups, by_group, by_places;

  explicit NormSizes(const View& x)
      : samples(x.size[0]),
        blocks(x.size[1]),
        groups(x.size[2]),
        group(x.size[3]),
        places(x.size[4]),
        by_blocks(blocks),
        by_groups(groups),
        by_group(group),
        by_places(places) {}
  HD std::int64_t channels() const { return groups * group; }
  HD double count() const { return static_cast<double>(group * places); }
};

// Where block b = n blocks + t of an array begins.
struct BlockStart {
  std::int64_t sample, block;
  explicit BlockStart(const View& x) : sample(x.stride[0]), block(x.stride[1]) {}
  HD std::int64_t operator()(const NormSizes& sizes, std::int64_t b) const {
    const auto at = sizes.by_blocks(b);
    return at.quotient * sample + at.remainder * block;
  }
};

// The statistics of group k of block b.
struct StatsOf {
  double* first;
  BlockStart start;
  explicit StatsOf(const View& x) : first(x.as<double>()), start(x) {}
  HD NormStats& operator()(const NormSizes& sizes, std::int64_t b, std::int64_t k) const {
    return *reinterpret_cast<NormStats*>(first + start(sizes, b) + 2 * k);
  }
};

// weight and bias of a channel.
template <class A>
struct ScaleShiftOf {
  const A *weight, *bias;
  explicit ScaleShiftOf(const Normalization& how)
      : weight(how.weight.as<A>()), bias(how.bias.as<A>()) {}
  HD A scaled(A x, std::int64_t channel) const { return weight ? x * weight[channel] : x; }
  HD A shifted(A x, std::int64_t channel) const { return bias ? x + bias[channel] : x; }
};

template <class T>
HD acc_t<T> normalized(const NormStats& stats, acc_t<T> x) {
  return static_cast<acc_t<T>>(stats.normalized(static_cast<double>(x)));
}

// Blocks whose channels lie side by side, in packs of `lanes`.
template <class T, int lanes>
struct Channels {
  using A = acc_t<T>;
  NormSizes sizes;
  Divisor by_packs;
  explicit Channels(const View& x) : sizes(x), by_packs(sizes.channels() / lanes) {}

  template <class X>
  HD static Pack<X, lanes> load(const X* x) {
    return *reinterpret_cast<const Pack<X, lanes>*>(x);
  }
  HD std::int64_t group_of(std::int64_t channel) const { return sizes.by_group(channel).quotient; }
};

// The places of a block, or the blocks of a sample that have one place each, in parts. These depend
// on neither the number of samples nor alignment, so that a sample has the bits that it has alone.
struct NormParts {
  std::int64_t lines, parts;
  Divisor by_parts;
  NormParts(std::int64_t lines, std::int64_t channels)
      : lines(lines),
        parts(count_parts(lines, (channels + pack - 1) / pack, threads, min_lines)),
        by_parts(parts) {}

 private:
  static constexpr std::int64_t pack = 8, threads = 1 << 10, min_lines = 64;
};

// sums[row, 2, channel] of pairs that add(pair, line, lane) adds for each line of a part.
template <class T, int lanes>
struct LineSums {
  double first[lanes] = {}, second[lanes] = {};

  HD void store(double* to, std::int64_t channels) const {
    for (int lane = 0; lane < lanes; ++lane) {
      to[lane] = first[lane];
      to[channels + lane] = second[lane];
    }
  }
  HD void add(int lane, double a, double b) {
    first[lane] += a;
    second[lane] += b;
  }
};

// sums[block, part, 2, channel] over places: of d = x - shift and d^2, or, where there is dy, of dy
// and dy d. The shift of a group is its first element, or its mean rounded to A.
template <class T, int lanes>
struct SumPlaces {
  using A = acc_t<T>;
  Channels<T, lanes> all;
  NormParts parts;
  bool centered;
  StatsOf stats;
  BlockStart of_x, of_dy;
  const T *x, *dy;
  double* sums;

  HD void operator()(std::int64_t index) const {
    const auto [row, pack] = all.by_packs(index);
    const auto [b, p] = parts.by_parts(row);
    const std::int64_t channels = all.sizes.channels(), channel = pack * lanes;
    const T* const a = x + of_x(all.sizes, b);
    A shift[lanes];
    for (int lane = 0; lane < lanes; ++lane) shift[lane] = shift_of(a, b, channel + lane);
    const Part part(parts.lines, parts.parts, p);
    LineSums<T, lanes> total;
    const auto add = [&](const Pack<T, lanes>& v, const Pack<T, lanes>& d) {
      for (int lane = 0; lane < lanes; ++lane) {
        const double deviation =
            static_cast<double>(A(v.value[lane])) - static_cast<double>(shift[lane]);
        const double of = dy ? static_cast<double>(A(d.value[lane])) : deviation;
        total.add(lane, of, of * deviation);
      }
    };
    const T* const other = dy ? dy + of_dy(all.sizes, b) : a;
    std::int64_t i = part.first;
    for (; i + ahead <= part.last; i += ahead) {
      Pack<T, lanes> v[ahead], d[ahead];
      for (int k = 0; k < ahead; ++k) {
        v[k] = all.load(a + (i + k) * channels + channel);
        d[k] = all.load(other + (i + k) * channels + channel);
      }
      for (int k = 0; k < ahead; ++k) add(v[k], d[k]);
    }
    for (; i < part.last; ++i)
      add(all.load(a + i * channels + channel), all.load(other + i * channels + channel));
    total.store(sums + row * 2 * channels + channel, channels);
  }

 private:
  static constexpr int ahead = 2;  // lines that are read together

  HD A shift_of(const T* a, std::int64_t b, std::int64_t channel) const {
    const std::int64_t k = all.group_of(channel);
    if (dy) return static_cast<A>(stats(all.sizes, b, k).mean);
    return centered ? A(a[k * all.sizes.group]) : A(0);
  }
};

// sums[sample, part, 2, channel] over blocks of one place: of dy and dy z.
template <class X, class Y, int lanes>
struct SumBlocks {
  using A = acc_t<X>;
  Channels<X, lanes> all;
  NormParts parts;
  StatsOf stats;
  BlockStart of_x, of_dy;
  const X* x;
  const Y* dy;
  double* sums;

  HD void operator()(std::int64_t index) const {
    const auto [row, pack] = all.by_packs(index);
    const auto [n, p] = parts.by_parts(row);
    const std::int64_t channel = pack * lanes;
    const Part part(parts.lines, parts.parts, p);
    LineSums<X, lanes> total;
    for (std::int64_t i = part.first; i < part.last; ++i) {
      const std::int64_t b = n * parts.lines + i;
      const Pack<X, lanes> v = all.load(x + of_x(all.sizes, b) + channel);
      const Pack<Y, lanes> d = all.load(dy + of_dy(all.sizes, b) + channel);
      std::int64_t k = all.group_of(channel);
      NormStats own = stats(all.sizes, b, k);
      for (int lane = 0; lane < lanes; ++lane) {
        if (all.sizes.groups > 1 && all.group_of(channel + lane) != k)
          own = stats(all.sizes, b, k = all.group_of(channel + lane));
        const double slope = static_cast<double>(A(d.value[lane]));
        total.add(lane, slope, slope * own.normalized(static_cast<double>(A(v.value[lane]))));
      }
    }
    total.store(sums + row * 2 * all.sizes.channels() + channel, all.sizes.channels());
  }
};

// The sums over parts and the channels of a group, weighted: of both numbers of SumPlaces.
struct GroupTotals {
  double first, second;

  template <class Team, class W>
  HD static GroupTotals of(const Team& team, const NormSizes& sizes, const NormParts& parts,
                           const double* sums, std::int64_t b, std::int64_t k, W weight) {
    const std::int64_t width = sizes.channels();
    double first = 0, second = 0;
    for (std::int64_t i = team.rank(); i < parts.parts * sizes.group; i += team.size()) {
      const auto [part, c] = sizes.by_group(i);
      const std::int64_t channel = k * sizes.group + c;
      const double* const at = sums + (b * parts.parts + part) * 2 * width + channel;
      const double w = weight(channel);
      first += w * at[0];
      second += w * at[width];
    }
    return {team.fold(Folding{Reduction::sum}, first), team.fold(Folding{Reduction::sum}, second)};
  }
};

// The statistics of every group, from SumPlaces.
template <class T>
struct FoldStats {
  NormSizes sizes;
  NormParts parts;
  NormRule rule;
  StatsOf stats;
  BlockStart of_x;
  const T* x;
  const double* sums;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const auto [b, k] = sizes.by_groups(index);
    const T first = x[of_x(sizes, b) + k * sizes.group];
    const double shift = rule.centered ? static_cast<double>(acc_t<T>(first)) : 0;
    const GroupTotals of =
        GroupTotals::of(team, sizes, parts, sums, b, k, [](std::int64_t) { return 1.0; });
    if (team.rank() == 0)
      stats(sizes, b, k) = NormSums{shift, of.first, of.second}.stats(rule, sizes.count());
  }
};

// The distance of SumPlaces' shift from the mean.
template <class A>
HD double shift_off(const NormStats& stats) {
  return static_cast<double>(static_cast<A>(stats.mean)) - stats.mean;
}

// The slopes of every group, which dx needs, from the sums of SumPlaces.
template <class A>
struct FoldSlopes {
  NormSizes sizes;
  NormParts parts;
  NormRule rule;
  ScaleShiftOf<A> affine;
  StatsOf stats;
  const double* sums;
  NormSlope<A>* slopes;  // [blocks of all samples, groups]

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const auto [b, k] = sizes.by_groups(index);
    const NormStats own = stats(sizes, b, k);
    const GroupTotals of = GroupTotals::of(team, sizes, parts, sums, b, k, [&](std::int64_t c) {
      return static_cast<double>(affine.scaled(A(1), c));
    });
    const double products = (of.second + shift_off<A>(own) * of.first) * own.rstd;
    if (team.rank() == 0) slopes[index] = NormSlope<A>(rule, of.first, products, sizes.count());
  }
};

// The gradients of weight and bias for each sample, from the sums of its places or of its blocks.
template <class A>
struct FoldWeights {
  NormSizes sizes;
  NormParts parts;
  bool of_places;
  StatsOf stats;
  const double* sums;
  A *dweight, *dbias;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t width = sizes.channels(), n = index / width, c = index % width;
    const std::int64_t rows = (of_places ? sizes.blocks : 1) * parts.parts;
    double first = 0, second = 0;
    for (std::int64_t i = team.rank(); i < rows; i += team.size()) {
      const double* const at = sums + (n * rows + i) * 2 * width + c;
      first += at[0];
      second += of_places
                    ? slope(n * sizes.blocks + parts.by_parts(i).quotient, c, at[0], at[width])
                    : at[width];
    }
    first = team.fold(Folding{Reduction::sum}, first);
    second = team.fold(Folding{Reduction::sum}, second);
    if (team.rank() != 0) return;
    if (dbias) dbias[index] = static_cast<A>(first);
    if (dweight) dweight[index] = static_cast<A>(second);
  }

 private:
  HD double slope(std::int64_t b, std::int64_t channel, double first, double second) const {
    const NormStats own = stats(sizes, b, sizes.by_group(channel).quotient);
    return (second + shift_off<A>(own) * first) * own.rstd;
  }
};

// y where channels lie side by side; or dx, if there is dy, which dx may be.
template <class T, int lanes>
struct MapPlaces {
  using A = acc_t<T>;
  Channels<T, lanes> all;
  ScaleShiftOf<A> affine;
  StatsOf stats;
  const NormSlope<A>* slopes;
  BlockStart of_x, of_dy, of_y;
  const T *x, *dy;
  T* y;

  HD void operator()(std::int64_t index) const {
    const auto [line, pack] = all.by_packs(index);
    const auto [b, place] = all.sizes.by_places(line);
    const std::int64_t channel = pack * lanes, at = place * all.sizes.channels() + channel;
    const Pack<T, lanes> v = all.load(x + of_x(all.sizes, b) + at);
    const Pack<T, lanes> d = dy ? all.load(dy + of_dy(all.sizes, b) + at) : v;
    Pack<A, lanes> weight{}, bias{};
    if (affine.weight) weight = all.load(affine.weight + channel);
    if (affine.bias && !dy) bias = all.load(affine.bias + channel);
    Pack<T, lanes> result;
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t k = all.group_of(channel + lane);
      const NormStats own = stats(all.sizes, b, k);
      const A z = normalized<T>(own, A(v.value[lane]));
      const A scaled = dy ? A(d.value[lane]) : z;
      const A product = affine.weight ? scaled * weight.value[lane] : scaled;
      result.value[lane] =
          T(dy ? static_cast<A>(own.rstd) * slopes[b * all.sizes.groups + k].off(product, z)
               : product + bias.value[lane]);
    }
    *reinterpret_cast<Pack<T, lanes>*>(y + of_y(all.sizes, b) + at) = result;
  }
};

}  // namespace sotto
