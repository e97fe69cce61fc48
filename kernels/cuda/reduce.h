// Reductions over any axes. Every result is folded in double. If there are few results and many
// elements, a result is divided into parts, which depend on the sizes only.
#pragma once

#include "kernels/cuda/cuda_map.h"
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
template <class T>
struct PartialFold {
  ReductionPlan plan;
  Folding folding;
  std::int64_t results, count, parts;
  const T* x;
  double* partial;  // [parts, results]
  View y;           // written if there is one part

  HD void put(std::int64_t index, double sum) const {
    if (parts == 1)
      store_as(sum, y.data, y.dtype, plan.kept_y.offset(index));
    else
      partial[index] = sum;
  }
  // Folds the elements rank, rank + size, ... of the part that belongs to `index`.
  HD double some(std::int64_t index, int rank, int size) const {
    const T* const from = x + plan.kept_x.offset(index % results);
    const Part part(count, parts, index / results);
    double sum = folding.start();
    for (std::int64_t i = part.first + rank; i < part.last; i += size) {
      sum = folding(sum, static_cast<double>(acc_t<T>(from[plan.reduced.offset(i)])));
    }
    return sum;
  }
};

// One thread per part; neighbouring threads have neighbouring results.
template <class T>
struct FoldColumns {
  PartialFold<T> fold;
  HD void operator()(std::int64_t index) const { fold.put(index, fold.some(index, 0, 1)); }
};

// One team per part, whose threads have neighbouring elements.
template <class T>
struct FoldRows {
  PartialFold<T> fold;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const double sum = team.fold(fold.folding, fold.some(index, team.rank(), team.size()));
    if (team.rank() == 0) fold.put(index, sum);
  }
};

// FoldRows for results whose elements are contiguous in aligned packs.
template <class T>
struct FoldPackedRows {
  PartialFold<T> fold;
  Row<T> row;
  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const T* const from = fold.x + fold.plan.kept_x.offset(index % fold.results);
    const Part part(row.count / row.lanes, fold.parts, index / fold.results);
    double sum = fold.folding.start();
    const auto add = [&](acc_t<T> v) { sum = fold.folding(sum, static_cast<double>(v)); };
    row.each(team, part.first * row.lanes, part.last * row.lanes, add, from);
    sum = team.fold(fold.folding, sum);
    if (team.rank() == 0) fold.put(index, sum);
  }
};

// True if FoldPackedRows applies.
template <class T>
bool packed_rows(const ReductionPlan& plan, const Row<T>& row) {
  bool fits = row.packed && plan.reduced.count == 1 && plan.reduced.back().stride == 1;
  for (int i = 0; i < plan.kept_x.count; ++i)
    fits = fits && plan.kept_x.axis[i].stride % row.lanes == 0;
  return fits;
}

// y[result] = its parts folded in order, some of which are read before they are folded.
template <class Fold>
struct FoldParts {
  AxisList kept_y;
  std::int64_t results, parts;
  const double* partial;
  View y;
  HD void operator()(std::int64_t result) const {
    constexpr int ahead = 8;
    const double* const first = partial + result;
    double sum = Fold::start();
    std::int64_t part = 0;
    for (; part + ahead <= parts; part += ahead) {
      double read[ahead];
      for (int k = 0; k < ahead; ++k) read[k] = first[(part + k) * results];
      for (int k = 0; k < ahead; ++k) sum = Fold::fold(sum, read[k]);
    }
    for (; part < parts; ++part) sum = Fold::fold(sum, first[part * results]);
    store_as(sum, y.data, y.dtype, kept_y.offset(result));
  }
};

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

// The numbers of threads and of teams that keep a large GPU busy, and the least work of each.
inline constexpr std::int64_t busy_threads = 1 << 18, busy_teams = 1 << 11;
inline constexpr std::int64_t thread_work = 64, team_work = 1 << 13;

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

template <class Exec>
void DeviceBackend<Exec>::reduce(Reduction op, View x, View y) {
  const Exec exec = execution("reduce", {&x, &y});
  if (y.numel() == 0) return;
  const ReductionPlan plan(x, y, TermOrder::memory);
  const std::int64_t results = plan.kept_x.numel(), count = plan.reduced.numel();
  const bool columns = plan.columns();
  const std::int64_t parts = columns ? count_parts(count, results, busy_threads, thread_work)
                                     : count_parts(count, results, busy_teams, team_work);
  const Scratch<double> partial(exec.device(), parts == 1 ? 0 : results * parts);
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    const PartialFold<T> fold{plan, {op}, results, count, parts, x.as<T>(), partial.data(), y};
    const Row<T> row(count, x.as<T>());
    if (columns) {
      exec.for_each(results * parts, FoldColumns<T>{fold});
    } else if (packed_rows(plan, row)) {
      exec.for_each_team(results * parts, count / parts, FoldPackedRows<T>{fold, row});
    } else {
      exec.for_each_team(results * parts, count / parts, FoldRows<T>{fold});
    }
  });
  if (parts == 1) return;
  with_fold(op, [&]<class Fold>(std::type_identity<Fold>) {
    exec.for_each(results, FoldParts<Fold>{plan.kept_y, results, parts, partial.data(), y});
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
