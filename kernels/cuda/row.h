// Rows of contiguous elements, each processed by a team of threads: 16 bytes at a time if every row
// begins and ends at a multiple of 16 bytes, as decided at launch. Whole rows of arrays that begin
// at one are so processed but for a few elements at either end.
#pragma once

#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/reduce_ops.h"

namespace sotto {

// Iterates over rows of `count` elements of type T, or of its accumulation type. Functions get
// values of the accumulation type.
template <class T>
struct Row {
  using A = acc_t<T>;
  static constexpr int lanes = pack_bytes / sizeof(T);

  std::int64_t count;
  bool aligned;  // every array begins at a multiple of 16 bytes
  bool packed;   // every row, too

  // For arrays that consist of consecutive rows.
  template <class... X>
  HD Row(std::int64_t count, const X*... arrays)
      : count(count),
        aligned(((reinterpret_cast<std::uintptr_t>(arrays) % (lanes * sizeof(X)) == 0) && ...)),
        packed(aligned && count % lanes == 0) {}

  // The number of elements processed together.
  HD int unit() const { return packed ? lanes : 1; }
  // `elements` rounded up to a multiple of unit().
  HD std::int64_t whole(std::int64_t elements) const {
    return (elements + unit() - 1) / unit() * unit();
  }

  // Calls f(i, x[i]...) for the calling thread's elements from `first` to before `end`, which are
  // multiples of unit().
  template <class Team, class F, class... X>
  HD void each_at(const Team& team, std::int64_t first, std::int64_t end, F f,
                  const X*... x) const {
    const Packs packs = packs_in(first, end, x...);
    for (std::int64_t i = first + team.rank(); i < packs.begin; i += team.size()) f(i, A(x[i])...);
    for (std::int64_t i = packs.begin + team.rank() * lanes; i < packs.end;
         i += team.size() * lanes)
      each_lane(f, i, load(x + i)...);
    for (std::int64_t i = packs.end + team.rank(); i < end; i += team.size()) f(i, A(x[i])...);
  }
  // Calls f(x[i]...) for these elements.
  template <class Team, class F, class... X>
  HD void each(const Team& team, std::int64_t first, std::int64_t end, F f, const X*... x) const {
    each_at(
        team, first, end, [&f](std::int64_t, auto... v) { f(v...); }, x...);
  }
  // sum_i f(x[i]...), returned to all threads.
  template <class Team, class F, class... X>
  HD double sum(const Team& team, F f, const X*... x) const {
    double sum = 0;
    each(
        team, 0, count, [&](auto... v) { sum += static_cast<double>(f(v...)); }, x...);
    return team.fold(Folding{Reduction::sum}, sum);
  }
  // y[i] = f(i, x[i]...)
  template <class Team, class F, class Y, class... X>
  HD void map_at(const Team& team, F f, Y* y, const X*... x) const {
    const Packs packs = packs_in(0, count, y, x...);
    const auto one = [&](std::int64_t i) { y[i] = Y(f(i, A(x[i])...)); };
    for (std::int64_t i = team.rank(); i < packs.begin; i += team.size()) one(i);
    for (std::int64_t i = packs.begin + team.rank() * lanes; i < packs.end;
         i += team.size() * lanes)
      *reinterpret_cast<Pack<Y, lanes>*>(y + i) = result<Y>(f, i, load(x + i)...);
    for (std::int64_t i = packs.end + team.rank(); i < count; i += team.size()) one(i);
  }
  // y[i] = f(x[i]...)
  template <class Team, class F, class Y, class... X>
  HD void map(const Team& team, F f, Y* y, const X*... x) const {
    map_at(
        team, [&f](std::int64_t, auto... v) { return f(v...); }, y, x...);
  }

 private:
  // The elements [begin, end) that are processed in packs; those around them one by one.
  struct Packs {
    std::int64_t begin, end;
  };
  // All arrays begin at a pack, so that they have packs at the same places.
  template <class X, class... More>
  HD Packs packs_in(std::int64_t first, std::int64_t end, const X* x, const More*...) const {
    if (packed) return {first, end};
    if (!aligned) return {end, end};
    const auto place =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(x + first) / sizeof(X));
    const std::int64_t begin = first + (lanes - place % lanes) % lanes;
    if (begin >= end) return {end, end};
    return {begin, begin + (end - begin) / lanes * lanes};
  }
  // Returned by value, in registers: one access, or two if x is the wider type.
  template <class X>
  HD static Pack<X, lanes> load(const X* x) {
    return *reinterpret_cast<const Pack<X, lanes>*>(x);
  }
  template <class F, class... V>
  HD static void each_lane(const F& f, std::int64_t i, const V... v) {
    for (int lane = 0; lane < lanes; ++lane) f(i + lane, A(v.value[lane])...);
  }
  template <class Y, class F, class... V>
  HD static Pack<Y, lanes> result(const F& f, std::int64_t i, const V... v) {
    Pack<Y, lanes> y;
    for (int lane = 0; lane < lanes; ++lane) y.value[lane] = Y(f(i + lane, A(v.value[lane])...));
    return y;
  }
};

}  // namespace sotto
