// Normalisation with scale and shift (kernels/host_device/norm_formulas.h); sums are computed in
// double. Groups whose elements lie side by side are normalised by a team each.
#pragma once

#include "kernels/cuda/normalization_lines.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/scratch.h"

namespace sotto {

// y of a group whose elements lie side by side. `whole`: weight has packs where x has, and so has a
// bias.
template <class X, class Y, bool whole>
struct NormalizeGroup {
  using A = acc_t<X>;
  NormSizes sizes;
  Row<X> row;
  NormRule rule;
  ScaleShiftOf<A> affine;
  StatsOf stats;
  BlockStart of_x, of_y;
  const X* x;
  Y* y;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const auto [b, k] = sizes.by_groups(index);
    const X* const a = x + of_x(sizes, b) + k * row.count;
    Y* const to = y + of_y(sizes, b) + k * row.count;
    const double shift = rule.centered ? static_cast<double>(A(a[0])) : 0;
    double sum = 0, squares = 0;
    row.each(
        team, 0, row.count,
        [&](A v) {
          const double d = static_cast<double>(v) - shift;
          sum += d;
          squares += d * d;
        },
        a);
    const NormSums sums{shift, team.fold(Folding{Reduction::sum}, sum),
                        team.fold(Folding{Reduction::sum}, squares)};
    const NormStats own = sums.stats(rule, sizes.count());
    if (team.rank() == 0) stats(sizes, b, k) = own;
    const std::int64_t first = k * sizes.group;
    if constexpr (whole) {
      const A* const bias = affine.bias ? affine.bias : affine.weight;
      const auto value = [&](A v, A w, A more) {
        return normalized<X>(own, v) * w + (affine.bias ? more : A(0));
      };
      row.map(team, value, to, a, affine.weight + first, bias + first);
    } else {
      const auto value = [&](std::int64_t i, A v) {
        const std::int64_t channel = first + sizes.by_places(i).quotient;
        return affine.shifted(affine.scaled(normalized<X>(own, v), channel), channel);
      };
      row.map_at(team, value, to, a);
    }
  }
};

// dx of such a group; dx may be dy.
template <class X, class Y, bool whole>
struct NormalizeGroupGrad {
  using A = acc_t<X>;
  NormSizes sizes;
  Row<X> row;
  NormRule rule;
  ScaleShiftOf<A> affine;
  StatsOf stats;
  BlockStart of_x, of_dy, of_dx;
  const X* x;
  const Y* dy;
  X* dx;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const auto [b, k] = sizes.by_groups(index);
    const NormStats own = stats(sizes, b, k);
    const X* const a = x + of_x(sizes, b) + k * row.count;
    const Y* const d = dy + of_dy(sizes, b) + k * row.count;
    X* const to = dx + of_dx(sizes, b) + k * row.count;
    const std::int64_t first = k * sizes.group;
    double sum = 0, products = 0;
    const auto add = [&](A slope, A v) {
      sum += static_cast<double>(slope);
      products += static_cast<double>(slope) * own.normalized(static_cast<double>(v));
    };
    const auto slope_at = [&](std::int64_t i, A dv) {
      return affine.scaled(dv, first + sizes.by_places(i).quotient);
    };
    const A* const weight = affine.weight + first;
    if constexpr (whole) {
      row.each(
          team, 0, row.count, [&](A dv, A v, A w) { add(dv * w, v); }, d, a, weight);
    } else {
      row.each_at(
          team, 0, row.count, [&](std::int64_t i, A dv, A v) { add(slope_at(i, dv), v); }, d, a);
    }
    sum = team.fold(Folding{Reduction::sum}, sum);
    products = team.fold(Folding{Reduction::sum}, products);
    const NormSlope<A> slope(rule, sum, products, sizes.count());
    const A rstd = static_cast<A>(own.rstd);
    const auto value = [&](A s, A v) { return rstd * slope.off(s, normalized<X>(own, v)); };
    if constexpr (whole) {
      row.map(
          team, [&](A dv, A v, A w) { return value(dv * w, v); }, to, d, a, weight);
    } else {
      row.map_at(
          team, [&](std::int64_t i, A dv, A v) { return value(slope_at(i, dv), v); }, to, d, a);
    }
  }
};

// The gradients of weight and bias where the places of a channel lie side by side.
template <class X, class Y>
struct SumChannel {
  using A = acc_t<X>;
  NormSizes sizes;
  StatsOf stats;
  BlockStart of_x, of_dy;
  const X* x;
  const Y* dy;
  A *dweight, *dbias;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t width = sizes.channels(), n = index / width, c = index % width;
    double first = 0, second = 0;
    for (std::int64_t i = team.rank(); i < sizes.blocks * sizes.places; i += team.size()) {
      const auto [t, place] = sizes.by_places(i);
      const std::int64_t b = n * sizes.blocks + t, at = c * sizes.places + place;
      const NormStats& own = stats(sizes, b, sizes.by_group(c).quotient);
      const double slope = static_cast<double>(A(dy[of_dy(sizes, b) + at]));
      first += slope;
      second += slope * own.normalized(static_cast<double>(A(x[of_x(sizes, b) + at])));
    }
    first = team.fold(Folding{Reduction::sum}, first);
    second = team.fold(Folding{Reduction::sum}, second);
    if (team.rank() != 0) return;
    if (dbias) dbias[index] = static_cast<A>(first);
    if (dweight) dweight[index] = static_cast<A>(second);
  }
};

// True if packs of `lanes` channels can be read from arrays of T, and from weight and bias.
template <class T>
bool packs_of_channels(const Normalization& how, std::initializer_list<const View*> arrays) {
  constexpr int lanes = pack_bytes / sizeof(T);
  const auto at_pack = [](const View& x) {
    return reinterpret_cast<std::uintptr_t>(x.data) % (lanes * size_of(x.dtype)) == 0;
  };
  bool fits = at_pack(how.weight) && at_pack(how.bias);
  for (const View* x : arrays) {
    fits = fits && at_pack(*x) && x->size[2] * x->size[3] % lanes == 0 &&
           x->stride[0] % lanes == 0 && x->stride[1] % lanes == 0;
  }
  return fits;
}

// Calls f(std::type_identity<T>{}, lanes), for packs of channels or for one at a time.
template <class T, class F>
void with_lanes(bool packs, F&& f) {
  if (packs)
    f(std::type_identity<T>{}, std::integral_constant<int, pack_bytes / sizeof(T)>{});
  else
    f(std::type_identity<T>{}, std::integral_constant<int, 1>{});
}

// Rows of the groups of x, of y, and of dx if there is one.
template <class X, class Y>
Row<X> group_rows(const View& x, const View& y, const View& dx = {}) {
  Row<X> row(x.size[3] * x.size[4], x.as<X>(), y.as<Y>(), dx.as<X>());
  bool apart = false;
  for (const View* other : {&x, &y, dx.data ? &dx : &x}) {
    for (const int axis : {0, 1}) {
      row.packed = row.packed && other->stride[axis] % row.lanes == 0;
      apart = apart || other->stride[axis] != x.stride[axis];
    }
  }
  // Rows of one group that lie at other distances may have packs at other places.
  if (apart) row.aligned = row.packed;
  return row;
}

// Calls f(std::true_type) if weight, and bias if there is one, have packs where the row has; else
// f(std::false_type).
template <class T, class F>
void with_whole_packs(const Row<T>& row, bool packs, const Normalization& how, F&& f) {
  if (row.packed && packs && how.weight.data)
    f(std::true_type{});
  else
    f(std::false_type{});
}

template <class X, class Y, class Exec>
void normalize_groups(const Exec& exec, const Normalization& how, bool packs, const View& x,
                      const View& stats, const View& y) {
  const NormSizes sizes(x);
  const Row<X> row = group_rows<X, Y>(x, y);
  with_whole_packs(
      row, packs && sizes.places == 1, how, [&]<bool whole>(std::bool_constant<whole>) {
        exec.for_each_team(sizes.samples * sizes.blocks * sizes.groups, row.count,
                           NormalizeGroup<X, Y, whole>{
                               sizes, row, how.rule, ScaleShiftOf<acc_t<X>>(how), StatsOf(stats),
                               BlockStart(x), BlockStart(y), x.as<X>(), y.as<Y>()});
      });
}

template <class T, int lanes, class Exec>
void normalize_places(const Exec& exec, const Normalization& how, const View& x, const View& stats,
                      const View& y) {
  const Channels<T, lanes> all(x);
  const NormSizes& sizes = all.sizes;
  const std::int64_t blocks = sizes.samples * sizes.blocks, width = sizes.channels();
  const NormParts parts(sizes.places, width);
  const Scratch<double> sums(exec.device(), blocks * parts.parts * 2 * width);
  exec.for_each(blocks * parts.parts * (width / lanes),
                SumPlaces<T, lanes>{all, parts, how.rule.centered, StatsOf(stats), BlockStart(x),
                                    BlockStart(x), x.as<T>(), nullptr, sums.data()});
  exec.for_each_team(
      blocks * sizes.groups, parts.parts * sizes.group,
      FoldStats<T>{sizes, parts, how.rule, StatsOf(stats), BlockStart(x), x.as<T>(), sums.data()});
  exec.for_each(
      blocks * sizes.places * (width / lanes),
      MapPlaces<T, lanes>{all, ScaleShiftOf<acc_t<T>>(how), StatsOf(stats), nullptr, BlockStart(x),
                          BlockStart(x), BlockStart(y), x.as<T>(), nullptr, y.as<T>()});
}

// True if the elements of each group lie side by side.
inline bool side_by_side(const View& x) { return x.size[4] == 1 || !channels_last(x); }

// Calls f(std::type_identity<X>{}, lanes) where X and Y are one type; two are refused.
template <class X, class Y, class F>
void with_places(bool packs, F&& f) {
  if constexpr (std::is_same_v<X, Y>)
    with_lanes<X>(packs, f);
  else
    bad_dtype(dtype_of<Y>(), name(dtype_of<X>()));
}

template <class Exec>
void DeviceBackend<Exec>::normalize(const Normalization& how, View x, View stats, View y) {
  const Exec exec = execution("normalize", {&x, &how.weight, &how.bias, &stats, &y});
  if (x.numel() == 0) return;
  dispatch_norm(
      x.dtype, y.dtype, [&]<class X, class Y>(std::type_identity<X>, std::type_identity<Y>) {
        const bool packs = packs_of_channels<X>(how, {&x, &y});
        if (side_by_side(x)) return normalize_groups<X, Y>(exec, how, packs, x, stats, y);
        with_places<X, Y>(packs, [&]<class T, int lanes>(std::type_identity<T>,
                                                         std::integral_constant<int, lanes>) {
          normalize_places<T, lanes>(exec, how, x, stats, y);
        });
      });
}

// A team of one thread.
struct LoneThread {
  HD static int rank() { return 0; }
  HD static int size() { return 1; }
  template <class F>
  HD static double fold(F, double x) {
    return x;
  }
};

template <class Body>
struct Alone {
  Body body;
  HD void operator()(std::int64_t index) const { body(LoneThread{}, index); }
};

// Calls body(team, i) for i < count, by a thread if it goes through less than a warp has threads.
template <class Exec, class Body>
void for_each_sum(const Exec& exec, std::int64_t count, std::int64_t terms, const Body& body) {
  constexpr std::int64_t warp_size = 32;
  if (terms < warp_size)
    exec.for_each(count, Alone<Body>{body});
  else
    exec.for_each_team(count, terms, body);
}

// Goes back where the elements of groups lie side by side. dx comes last: it may be dy.
template <class X, class Y, class Exec>
void groups_grad(const Exec& exec, const Normalization& how, bool packs, const View& x,
                 const View& stats, const View& dy, const NormalizationGrads& grads) {
  using A = acc_t<X>;
  const NormSizes sizes(dy);
  const std::int64_t width = sizes.channels();
  A *const dweight = grads.dweight.as<A>(), *const dbias = grads.dbias.as<A>();
  if ((dweight || dbias) && sizes.places == 1) {
    with_lanes<X>(packs, [&]<int lanes>(auto, std::integral_constant<int, lanes>) {
      const NormParts parts(sizes.blocks, width);
      const Scratch<double> sums(exec.device(), sizes.samples * parts.parts * 2 * width);
      exec.for_each(
          sizes.samples * parts.parts * (width / lanes),
          SumBlocks<X, Y, lanes>{Channels<X, lanes>(dy), parts, StatsOf(stats), BlockStart(x),
                                 BlockStart(dy), x.as<X>(), dy.as<Y>(), sums.data()});
      for_each_sum(
          exec, sizes.samples * width, parts.parts,
          FoldWeights<A>{sizes, parts, false, StatsOf(stats), sums.data(), dweight, dbias});
    });
  } else if (dweight || dbias) {
    exec.for_each_team(sizes.samples * width, sizes.blocks * sizes.places,
                       SumChannel<X, Y>{sizes, StatsOf(stats), BlockStart(x), BlockStart(dy),
                                        x.as<X>(), dy.as<Y>(), dweight, dbias});
  }
  if (!grads.dx.data) return;
  const Row<X> row = group_rows<X, Y>(x, dy, grads.dx);
  with_whole_packs(
      row, packs && sizes.places == 1, how, [&]<bool whole>(std::bool_constant<whole>) {
        exec.for_each_team(
            sizes.samples * sizes.blocks * sizes.groups, row.count,
            NormalizeGroupGrad<X, Y, whole>{
                sizes, row, how.rule, ScaleShiftOf<A>(how), StatsOf(stats), BlockStart(x),
                BlockStart(dy), BlockStart(grads.dx), x.as<X>(), dy.as<Y>(), grads.dx.as<X>()});
      });
}

// Goes back where a block's channels lie side by side at each place.
template <class T, int lanes, class Exec>
void places_grad(const Exec& exec, const Normalization& how, const View& x, const View& stats,
                 const View& dy, const NormalizationGrads& grads) {
  using A = acc_t<T>;
  const Channels<T, lanes> all(dy);
  const NormSizes& sizes = all.sizes;
  const std::int64_t blocks = sizes.samples * sizes.blocks, width = sizes.channels();
  const NormParts parts(sizes.places, width);
  const Scratch<double> sums(exec.device(), blocks * parts.parts * 2 * width);
  exec.for_each(blocks * parts.parts * (width / lanes),
                SumPlaces<T, lanes>{all, parts, how.rule.centered, StatsOf(stats), BlockStart(x),
                                    BlockStart(dy), x.as<T>(), dy.as<T>(), sums.data()});
  if (grads.dweight.data || grads.dbias.data) {
    for_each_sum(exec, sizes.samples * width, sizes.blocks * parts.parts,
                 FoldWeights<A>{sizes, parts, true, StatsOf(stats), sums.data(),
                                grads.dweight.as<A>(), grads.dbias.as<A>()});
  }
  if (!grads.dx.data) return;
  const ScaleShiftOf<A> affine(how);
  const Scratch<NormSlope<A>> slopes(exec.device(), blocks * sizes.groups);
  exec.for_each_team(
      blocks * sizes.groups, parts.parts * sizes.group,
      FoldSlopes<A>{sizes, parts, how.rule, affine, StatsOf(stats), sums.data(), slopes.data()});
  exec.for_each(
      blocks * sizes.places * (width / lanes),
      MapPlaces<T, lanes>{all, affine, StatsOf(stats), slopes.data(), BlockStart(x), BlockStart(dy),
                          BlockStart(grads.dx), x.as<T>(), dy.as<T>(), grads.dx.as<T>()});
}

template <class Exec>
void DeviceBackend<Exec>::normalize_grad(const Normalization& how, View x, View stats, View dy,
                                         const NormalizationGrads& grads) {
  const Exec exec = execution(
      "normalize_grad", {&x, &how.weight, &stats, &dy, &grads.dx, &grads.dweight, &grads.dbias});
  if (dy.numel() == 0) return;
  dispatch_norm(
      x.dtype, dy.dtype, [&]<class X, class Y>(std::type_identity<X>, std::type_identity<Y>) {
        const bool packs = packs_of_channels<X>(how, {&x, &dy, &grads.dx});
        if (side_by_side(x)) return groups_grad<X, Y>(exec, how, packs, x, stats, dy, grads);
        with_places<X, Y>(packs, [&]<class T, int lanes>(std::type_identity<T>,
                                                         std::integral_constant<int, lanes>) {
          places_grad<T, lanes>(exec, how, x, stats, dy, grads);
        });
      });
}

}  // namespace sotto
