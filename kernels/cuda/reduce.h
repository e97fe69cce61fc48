// Reductions over any axes. Every result is folded in double. If there are few results and many
// elements, a result is divided into parts, which depend on the sizes only.
#pragma once

#include "kernels/cuda/columns.h"
#include "kernels/cuda/reduce_ops.h"
#include "kernels/cuda/row.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/scratch.h"
#include "kernels/host_device/reduction_plan.h"

namespace sotto {

// The range [first, last) of part `part` of `parts` of `count` elements.
struct Part {
  std::int64_t first, last;
  HD Part(std::int64_t count, std::int64_t parts, std::int64_t part)
      : first(count / parts * part + smaller(part, count % parts)),
        last(first + count / parts + (part < count % parts ? 1 : 0)) {}

 private:
  HD static std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
};

// The number of parts for `count` elements of each of `results` results: enough for `bodies` bodies
// to run side by side, but each part has at least `min` elements.
inline std::int64_t count_parts(std::int64_t count, std::int64_t results, std::int64_t bodies,
                                std::int64_t min) {
  const std::int64_t wanted = (bodies + results - 1) / results;
  return std::max<std::int64_t>(1, std::min(wanted, count / min));
}

// Folds one part of a result.
template <class T, class Fold>
struct PartialFold {
  ReductionPlan plan;
  std::int64_t results, count, parts;
  const T* x;
  double* partial;  // [parts, results]
  View y;           // written if there is one part

  // Writes parts `first` and following of neighbouring results.
  template <int lanes>
  HD void put(std::int64_t first, const double (&sums)[lanes]) const {
    if (parts > 1) return put_columns(sums, partial + first);
    const std::int64_t to = plan.kept_y.offset(first);
    const std::int64_t stride = plan.kept_y.empty() ? 0 : plan.kept_y.back().stride;
    for (int lane = 0; lane < lanes; ++lane)
      store_as(sums[lane], y.data, y.dtype, to + lane * stride);
  }
};

// One thread per part of `lanes` neighbouring results; it folds each result's elements of the part
// in order.
template <class T, class Fold, int lanes>
struct FoldColumns {
  PartialFold<T, Fold> fold;
  AxisList outer;  // reduced axes but the innermost

  HD void operator()(std::int64_t index) const {
    const std::int64_t packs = fold.results / lanes, first = index % packs * lanes,
                       at = index / packs;
    const T* const from = fold.x + fold.plan.kept_x.offset(first);
    const Axis rows = fold.plan.reduced.back();
    const Part part(fold.count, fold.parts, at);
    double sums[lanes];
    for (double& sum : sums) sum = Fold::start();
    // Runs along the innermost reduced axis, for each index of the outer ones.
    for (std::int64_t i = part.first; i < part.last;) {
      const std::int64_t place = i / rows.size, row = i - place * rows.size, left = part.last - i,
                         end = rows.size - row < left ? rows.size : row + left;
      each_column<lanes>(
          row, end, from + outer.offset(place), rows.stride, [](std::int64_t) { return 1.0; },
          [&](int lane, double, double v) { sums[lane] = Fold::fold(sums[lane], v); });
      i += end - row;
    }
    fold.put(at * fold.results + first, sums);
  }
};

// One team per part, whose threads have neighbouring elements.
template <class T, class Fold>
struct FoldRows {
  PartialFold<T, Fold> fold;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const T* const from = fold.x + fold.plan.kept_x.offset(index % fold.results);
    const Part part(fold.count, fold.parts, index / fold.results);
    double sum = Fold::start();
    for (std::int64_t i = part.first + team.rank(); i < part.last; i += team.size())
      sum = Fold::fold(sum, static_cast<double>(acc_t<T>(from[fold.plan.reduced.offset(i)])));
    const double all[] = {team.fold(&Fold::fold, sum)};
    if (team.rank() == 0) fold.put(index, all);
  }
};

// FoldRows for results whose elements are contiguous in aligned packs.
template <class T, class Fold>
struct FoldPackedRows {
  PartialFold<T, Fold> fold;
  Row<T> row;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const T* const from = fold.x + fold.plan.kept_x.offset(index % fold.results);
    const Part part(row.count / row.lanes, fold.parts, index / fold.results);
    double sum = Fold::start();
    const auto add = [&](acc_t<T> v) { sum = Fold::fold(sum, static_cast<double>(v)); };
    row.each(team, part.first * row.lanes, part.last * row.lanes, add, from);
    const double all[] = {team.fold(&Fold::fold, sum)};
    if (team.rank() == 0) fold.put(index, all);
  }
};

// True if the strides of all axes but `inner` are multiples of `lanes`.
inline bool strides_in_packs(const AxisList& axes, int inner, int lanes) {
  bool fits = true;
  for (int i = 0; i < axes.count; ++i)
    fits = fits && (i == inner || axes.axis[i].stride % lanes == 0);
  return fits;
}

// True if FoldPackedRows applies.
template <class T>
bool packed_rows(const ReductionPlan& plan, const Row<T>& row) {
  return row.packed && plan.reduced.count == 1 && plan.reduced.back().stride == 1 &&
         strides_in_packs(plan.kept_x, -1, row.lanes);
}

// True if FoldColumns can take packs.
template <class T>
bool packed_columns(const ReductionPlan& plan, const T* x) {
  constexpr int lanes = column_lanes<T>;
  const Axis& inner = plan.kept_x.back();
  return aligned(x) && inner.stride == 1 && inner.size % lanes == 0 &&
         strides_in_packs(plan.kept_x, plan.kept_x.count - 1, lanes) &&
         strides_in_packs(plan.reduced, -1, lanes);
}

// y[result] = its parts folded, plus beta y[result]: each thread of a team folds every size()th
// part in order, and reads some parts ahead. A team has a few neighbouring results, which share
// sectors of memory.
template <class Fold>
struct FoldParts {
  static constexpr int lanes = 4;
  AxisList kept_y;
  std::int64_t results, parts;
  const double* partial;
  double beta;
  View y;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    constexpr int ahead = 4;
    const std::int64_t first = index * lanes, step = team.size();
    double sums[lanes];
    for (double& sum : sums) sum = Fold::start();
    for (std::int64_t part = team.rank(); part < parts; part += ahead * step) {
      double read[ahead][lanes];
      for (int k = 0; k < ahead; ++k) {
        const std::int64_t row = part + k * step;
        for (int lane = 0; lane < lanes; ++lane)
          read[k][lane] = row < parts && first + lane < results
                              ? partial[row * results + first + lane]
                              : Fold::start();
      }
      for (int k = 0; k < ahead; ++k)
        for (int lane = 0; lane < lanes; ++lane) sums[lane] = Fold::fold(sums[lane], read[k][lane]);
    }
    for (int lane = 0; lane < lanes; ++lane) {
      const double sum = team.fold(&Fold::fold, sums[lane]);
      if (team.rank() == 0 && first + lane < results) put(kept_y.offset(first + lane), sum);
    }
  }

 private:
  HD void put(std::int64_t at, double sum) const {
    const double before = beta == 0 ? 0 : beta * load_as<double>(y.data, y.dtype, at);
    store_as(beta == 0 ? sum : before + sum, y.data, y.dtype, at);
  }
};

template <class Fold, class Exec>
void fold_parts(const Exec& exec, const FoldParts<Fold>& fold) {
  constexpr int lanes = FoldParts<Fold>::lanes;
  exec.for_each_team((fold.results + lanes - 1) / lanes, fold.parts, fold);
}

// Calls f(std::type_identity<Fold>) for the fold of a reduction.
template <class F>
void with_fold(Reduction op, F&& f) {
  switch (op) {
    case Reduction::sum: return f(std::type_identity<SumFold>{});
    case Reduction::max: return f(std::type_identity<MaxFold>{});
    case Reduction::min: return f(std::type_identity<MinFold>{});
    case Reduction::product: return f(std::type_identity<ProductFold>{});
  }
}

// The numbers of threads with packs of columns and of teams that keep a large GPU busy, and the
// least rows and elements of each.
inline constexpr std::int64_t busy_threads = 1 << 16, busy_teams = 1 << 11;
inline constexpr std::int64_t thread_work = 16, team_work = 1 << 13;

// The number of parts of `rows` for each of `width` columns of type T: one for few rows, or enough
// columns, where a second launch does not pay. It does not depend on alignment, and so neither does
// the order of sums.
template <class T>
std::int64_t count_row_parts(std::int64_t rows, std::int64_t width) {
  constexpr std::int64_t few = 8 * thread_work;
  const std::int64_t packs = (width + column_lanes<T> - 1) / column_lanes<T>;
  if (rows < few || packs >= busy_threads / 2) return 1;
  return count_parts(rows, packs, busy_threads, thread_work);
}

// The first largest element of a row. As in a sequential comparison, NaN is the largest if it comes
// first, and is skipped elsewhere.
template <class T>
struct ArgMax {
  std::int64_t width;
  const T* x;
  std::int64_t* y;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t row) const {
    const T* const from = x + row * width;
    double top = -HUGE_VAL;
    double place = static_cast<double>(width);
    for (std::int64_t k = team.rank(); k < width; k += team.size()) {
      const auto value = static_cast<double>(acc_t<T>(from[k]));
      const double shown = value == value ? value : (k == 0 ? HUGE_VAL : -HUGE_VAL);
      if (shown > top || place == static_cast<double>(width)) {
        top = shown;
        place = static_cast<double>(k);
      }
    }
    const double max = team.fold(Folding{Reduction::max}, top);
    place = team.fold(Folding{Reduction::min}, top == max ? place : static_cast<double>(width));
    if (team.rank() == 0) y[row] = static_cast<std::int64_t>(place);
  }
};

// Folds all parts.
template <class Exec, class T, class Fold>
void fold_some(const Exec& exec, const PartialFold<T, Fold>& fold) {
  const std::int64_t bodies = fold.results * fold.parts;
  const Row<T> row(fold.count, fold.x);
  if (fold.plan.columns()) {
    with_columns<T>(packed_columns(fold.plan, fold.x), [&](auto lanes) {
      exec.for_each(bodies / lanes, FoldColumns<T, Fold, lanes>{fold, fold.plan.reduced.outer()});
    });
  } else if (packed_rows(fold.plan, row)) {
    exec.for_each_team(bodies, fold.count / fold.parts, FoldPackedRows<T, Fold>{fold, row});
  } else {
    exec.for_each_team(bodies, fold.count / fold.parts, FoldRows<T, Fold>{fold});
  }
}

template <class Exec>
void DeviceBackend<Exec>::reduce(Reduction op, View x, View y) {
  const Exec exec = execution("reduce", {&x, &y});
  if (y.numel() == 0) return;
  const ReductionPlan plan(x, y, TermOrder::memory);
  const std::int64_t results = plan.kept_x.numel(), count = plan.reduced.numel();
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    with_fold(op, [&]<class Fold>(std::type_identity<Fold>) {
      const std::int64_t parts = plan.columns()
                                     ? count_row_parts<T>(count, results)
                                     : count_parts(count, results, busy_teams, team_work);
      const Scratch<double> partial(exec.device(), parts == 1 ? 0 : results * parts);
      const PartialFold<T, Fold> fold{plan, results, count, parts, x.as<T>(), partial.data(), y};
      fold_some(exec, fold);
      if (parts > 1)
        fold_parts(exec, FoldParts<Fold>{plan.kept_y, results, parts, partial.data(), 0, y});
    });
  });
}

template <class Exec>
void DeviceBackend<Exec>::argmax(View x, View y) {
  const Exec exec = execution("argmax", {&x, &y});
  const std::int64_t width = x.size[x.rank - 1];
  if (y.numel() == 0) return;
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    exec.for_each_team(y.numel(), width, ArgMax<T>{width, x.as<T>(), y.as<std::int64_t>()});
  });
}

}  // namespace sotto
