// Clipping on a GPU: term bounds from norms, and work on several arrays at once.
#pragma once

#include <vector>

#include "kernels/cuda/arrays.h"
#include "kernels/cuda/cuda_per_sample.h"
#include "kernels/cuda/weighted_rows.h"
#include "kernels/host_device/clip_sample.h"
#include "kernels/host_device/row_arrays.h"
#include "kernels/host_device/term_bounds.h"

namespace sotto {

// One team for each sample of each parameter: a warp, so that the order of a sum does not depend on
// the other parameters.
struct BoundTerms {
  ArrayTable<TermOperands> parameters;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const auto [terms, n] = parameters[index];
    TermSums sums;
    for (std::int64_t t = team.rank(); t < terms.positions(); t += team.size())
      terms.add(n, t, sums);
    const Folding add{Reduction::sum};
    sums.norms = team.fold(add, sums.norms);
    sums.count = team.fold(add, sums.count);
    sums.a_squares = team.fold(add, sums.a_squares);
    sums.b_squares = team.fold(add, sums.b_squares);
    if (team.rank() == 0) terms.write(n, sums);
  }
};

struct MarkCancelled {
  CancelledSquares squares;
  View marks;
  HD void operator()(std::int64_t n) const {
    marks.as<double>()[n * marks.stride[0]] += squares.cancelled(n) ? 1 : 0;
  }
};

struct NoMarks {
  double* y;
  HD void operator()(std::int64_t k) const { y[k] = 0; }
};

// An array without gaps, which teams go through in parts of equal size.
struct FlatArray {
  static constexpr std::int64_t part = std::int64_t{1} << 16;
  void* data;
  std::int64_t size;
  std::int64_t number;  // among all arrays
  Dtype dtype;

  FlatArray() = default;
  FlatArray(const View& x, std::int64_t number)
      : data(x.data), size(x.numel()), number(number), dtype(x.dtype) {}
  HD std::int64_t parts() const { return (size + part - 1) / part; }
  HD std::int64_t end_of(std::int64_t index) const {
    const std::int64_t end = (index + 1) * part;
    return end < size ? end : size;
  }
};

struct MarkNonfinite {
  ArrayTable<FlatArray> arrays;
  double* y;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const auto [array, part] = arrays[index];
    double found = 0;
    switch (array.dtype) {
      case Dtype::f64: found = outside<double>(team, array, part); break;
      case Dtype::f32: found = outside<float>(team, array, part); break;
      case Dtype::f16: found = outside<f16>(team, array, part); break;
      default: found = outside<bf16>(team, array, part);
    }
    found = team.fold(Folding{Reduction::max}, found);
    // All teams that write here write 1.
    if (team.rank() == 0 && found > 0) y[array.number] = 1;
  }

 private:
  // 1 if the calling thread finds an element whose difference from itself is not 0.
  template <class T, class Team>
  HD static double outside(const Team& team, const FlatArray& array, std::int64_t part) {
    const T* const x = static_cast<const T*>(array.data);
    bool finite = true;
    Row<T>(array.size, x)
        .each(
            team, part * FlatArray::part, array.end_of(part),
            [&](acc_t<T> v) { finite = finite && v - v == 0; }, x);
    return finite ? 0 : 1;
  }
};

struct ZeroArrays {
  ArrayTable<FlatArray> arrays;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const auto [array, part] = arrays[index];
    const std::int64_t end = array.end_of(part);
    for (std::int64_t i = part * FlatArray::part + team.rank(); i < end; i += team.size())
      store_as(0.0, array.data, array.dtype, i);
  }
};

// Rows [rows, width] without gaps.
struct RowArray {
  const void* x;
  double* y;
  std::int64_t width;
  double spacing;
  Dtype dtype;
  bool packed = false;  // rows and sums are read in packs of columns
};

// The squared norm of one row, as DotRows sums it in one part.
struct SquareRows {
  ArrayTable<RowArray> arrays;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    const auto [rows, n] = arrays[index];
    switch (rows.dtype) {
      case Dtype::f64: return square<double>(team, rows, n);
      case Dtype::f32: return square<float>(team, rows, n);
      case Dtype::f16: return square<f16>(team, rows, n);
      default: return square<bf16>(team, rows, n);
    }
  }

 private:
  template <class T, class Team>
  HD static void square(const Team& team, const RowArray& rows, std::int64_t n) {
    const T* const x = static_cast<const T*>(rows.x);
    DotRows<T>{Row<T>(rows.width, x, x), 1, x, x, rows.y}(team, n);
  }
};

// One column of one array, or a pack of columns.
struct AddRoundedColumns {
  ArrayTable<RowArray> arrays;
  std::int64_t samples;
  const double* w;

  HD void operator()(std::int64_t index) const {
    const auto [rows, column] = arrays[index];
    switch (rows.dtype) {
      case Dtype::f64: return add<double>(rows, column);
      case Dtype::f32: return add<float>(rows, column);
      case Dtype::f16: return add<f16>(rows, column);
      default: return add<bf16>(rows, column);
    }
  }
  static std::int64_t bodies(const RowArray& rows) {
    return rows.packed ? rows.width * static_cast<std::int64_t>(size_of(rows.dtype)) / pack_bytes
                       : rows.width;
  }

 private:
  template <class T>
  HD void add(const RowArray& rows, std::int64_t index) const {
    const T* const x = static_cast<const T*>(rows.x);
    if (rows.packed)
      AddRoundedColumn<T, column_lanes<T>>{samples, rows.width, x, w, rows.spacing, rows.y}(index);
    else
      AddRoundedColumn<T, 1>{samples, rows.width, x, w, rows.spacing, rows.y}(index);
  }
};

template <class Exec>
void DeviceBackend<Exec>::clip_factors(const ClipRule& rule, double margin, View terms,
                                       View settings, View y) {
  const Exec exec = execution("clip_factors", {&terms, &settings, &y});
  const ClipSample clip(rule, margin, terms, settings, y);
  exec.for_each(clip.samples, clip);
}

template <class Exec>
void DeviceBackend<Exec>::term_bounds(std::span<const BoundedTerms> parameters) {
  const Exec exec = execution("term_bounds", {});
  for_each_table<TermOperands>(
      std::ssize(parameters),
      [&](auto& table, std::int64_t k) {
        const BoundedTerms& terms = parameters[static_cast<std::size_t>(k)];
        return table.add(TermOperands(terms), terms.error_bounds.size[0]);
      },
      [&](const auto& table) { exec.for_each_team(table.bodies(), 1, BoundTerms{table}); });
}

template <class Exec>
void DeviceBackend<Exec>::mark_cancelled(const CancelledSquares& squares, View marks) {
  const Exec exec = execution("mark_cancelled", {&squares.squares, &squares.a, &squares.b, &marks});
  exec.for_each(marks.size[0], MarkCancelled{squares, marks});
}

// Calls f(table) for tables of all arrays.
template <class F>
void for_each_flat(std::span<const View> arrays, const F& f) {
  for_each_table<FlatArray>(
      std::ssize(arrays),
      [&](auto& table, std::int64_t k) {
        const FlatArray array(arrays[static_cast<std::size_t>(k)], k);
        return table.add(array, array.parts());
      },
      f);
}

template <class Exec>
void DeviceBackend<Exec>::mark_nonfinite(std::span<const View> arrays, View y) {
  const Exec exec = execution("mark_nonfinite", {&y});
  exec.for_each(y.numel(), NoMarks{y.as<double>()});
  for_each_flat(arrays, [&](const auto& table) {
    exec.for_each_team(table.bodies(), FlatArray::part, MarkNonfinite{table, y.as<double>()});
  });
}

template <class Exec>
void DeviceBackend<Exec>::zero_all(std::span<const View> arrays) {
  const Exec exec = execution("zero_all", {});
  for_each_flat(arrays, [&](const auto& table) {
    exec.for_each_team(table.bodies(), FlatArray::part, ZeroArrays{table});
  });
}

// Rows of up to so many elements are a warp's, as execution.cuh decides; wider ones are a block's.
inline constexpr std::int64_t widest_narrow_row = 1024;

template <class Exec>
void DeviceBackend<Exec>::squared_row_norms(std::span<const RowNorms> all) {
  const Exec exec = execution("squared_row_norms", {});
  std::vector<RowNorms> narrow, wide;
  for (const RowNorms& one : all) {
    const View& x = one.x;
    if (x.size[0] == 0) continue;
    if (count_parts(x.size[1], x.size[0], busy_teams, team_work) > 1)
      row_dot(x, x, one.y);
    else
      (x.size[1] <= widest_narrow_row ? narrow : wide).push_back(one);
  }
  for (const auto* rows : {&narrow, &wide}) {
    for_each_table<RowArray>(
        std::ssize(*rows),
        [&](auto& table, std::int64_t k) {
          const auto& [x, y] = (*rows)[static_cast<std::size_t>(k)];
          return table.add({x.data, y.template as<double>(), x.size[1], 0, x.dtype}, x.size[0]);
        },
        [&](const auto& table) {
          exec.for_each_team(table.bodies(), rows == &narrow ? 1 : widest_narrow_row + 1,
                             SquareRows{table});
        });
  }
}

template <class Exec>
void DeviceBackend<Exec>::add_all_rounded(std::span<const RoundedRows> all, View w) {
  const Exec exec = execution("add_all_rounded", {&w});
  const Weights weights(exec, w);
  for_each_table<RowArray>(
      std::ssize(all),
      [&](auto& table, std::int64_t k) {
        const auto& [x, spacing, y] = all[static_cast<std::size_t>(k)];
        RowArray rows{x.data, y.template as<double>(), x.size[1], spacing, x.dtype};
        dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
          rows.packed = packed_rows_of<T>(rows.width, rows.x, rows.y);
        });
        return table.add(rows, AddRoundedColumns::bodies(rows));
      },
      [&](const auto& table) {
        exec.for_each(table.bodies(), AddRoundedColumns{table, w.size[0], weights.data()});
      });
}

}  // namespace sotto
