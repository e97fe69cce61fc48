// The sum of weighted products that are rounded one by one (Backend::add_rounded_products), without
// writing any of them to memory. A block of threads has one tile of the sum, and takes the samples
// of its part one after the other: it multiplies the factors in f32, on matrix units if they have
// 16 bits, and adds the rounded tile to a sum in f64 that stays in registers.
//
// The body is written for a whole block, so that the tests can run it on the host. A `Block`
// (device_block.cuh; tests/fake_gpu/host_block.h) has
//   each_warp(f), each_thread(f)    f(warp) or f(thread) for every warp or thread of the block
//   PerWarp<X>, PerLane<X>          an X for every warp, or for every lane of a warp: x(warp)
//   each_lane(f)                    within each_warp: f(lane) for every lane of the warp
//   copy(to, from, bytes)           begins to copy the first `bytes` of a chunk, and zeros for the
//                                   rest; commit() ends a group of copies
//   wait<n>(), sync()               wait() until at most the last n groups are under way, then
//                                   sync() before any thread reads what was copied
//   load_transposed(y, row_of)      four matrices of 8 x 8 elements of 16 bits, whose rows lie at
//                                   row_of(0), ..., row_of(31): lane l gets of the transpose of
//                                   matrix k, in y(l)[k], row l / 4, columns l % 4 * 2 and the next
//   multiply<T>(a, b, at, c)        c += a b for a [16, 16] and b [16, 8], with b's registers from
//                                   b(lane)[at] on, as the matrices lie in the lanes' registers
//                                   (PTX ISA, "Matrix Fragments for mma.m16n8k16")
#pragma once

#include <algorithm>
#include <utility>

#include "core/dtype.h"
#include "kernels/cuda/cuda_per_sample.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/host_device/rounded_term.h"

namespace sotto {

// Calls f(constant) for the constants 0 .. count - 1, so that arrays stay in registers.
template <int count, class F>
HD void unrolled(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) { (f(std::integral_constant<int, i>{}), ...); }
  (std::make_integer_sequence<int, count>{});
}

// 16 bytes of a factor's row.
struct alignas(16) FactorChunk {
  static constexpr int bytes = 16;
  unsigned char data[bytes];
};

// One factor of the products: rows [samples, positions] of `columns` adjacent elements.
template <class T>
struct FactorRows {
  static constexpr int lanes = FactorChunk::bytes / static_cast<int>(sizeof(T));
  const T* data;
  std::int64_t sample_stride, row_stride;
  int columns;
  bool in_chunks;  // all chunks are aligned

  explicit FactorRows(const View& x)
      : data(x.as<const T>()),
        sample_stride(x.stride[0]),
        row_stride(x.stride[1]),
        columns(static_cast<int>(x.size[2])),
        in_chunks(reinterpret_cast<std::uintptr_t>(data) % FactorChunk::bytes == 0 &&
                  x.stride[0] % lanes == 0 && x.stride[1] % lanes == 0) {}

  // Begins to fill a chunk from `column` on; beyond the last column, and if there is no `row`, with
  // zeros.
  template <class Block>
  HD void fetch(const Block& block, std::int64_t sample, int position, bool row, int column,
                FactorChunk& to) const {
    const int left = columns - column, valid = !row || left < 0 ? 0 : left < lanes ? left : lanes;
    const T* const from =
        valid == 0 ? data : data + sample * sample_stride + position * row_stride + column;
    if (in_chunks) return block.copy(&to, from, valid * static_cast<int>(sizeof(T)));
    T* const values = reinterpret_cast<T*>(to.data);
    for (int i = 0; i < lanes; ++i) values[i] = i < valid ? from[i] : T{};
  }
};

template <class T>
struct RoundedProduct {
  static constexpr int warps_in_row = 4, warps = warps_in_row * warps_in_row, lanes = 32,
                       threads = warps * lanes;
  // Rows and columns of a block's and of a warp's tile; a lane has values of a warp's tile.
  static constexpr int warp_tile = 32, tile = warps_in_row * warp_tile,
                       values = warp_tile * warp_tile / lanes;
  static constexpr int chunk_lanes = FactorRows<T>::lanes, row_chunks = tile / chunk_lanes;
  // Positions that are fetched and multiplied together, and how many of these groups are in shared
  // memory: 48 KiB of both factors, which every kernel may have.
  static constexpr int depth = 64 / static_cast<int>(sizeof(T)), stages = 3;
  static_assert(threads == depth * row_chunks && product_chain % depth == 0);

  // `depth` rows of tile elements. Chunk c of row k lies at c ^ (k % 8), so that lanes that read
  // one column of eight rows, or eight chunks of a row, read from different banks.
  struct Factor {
    FactorChunk chunks[depth * row_chunks];
    HD FactorChunk& at(int k, int chunk) { return chunks[k * row_chunks + (chunk ^ (k % 8))]; }
    HD const FactorChunk& at(int k, int chunk) const {
      return const_cast<Factor*>(this)->at(k, chunk);
    }
  };
  struct Stage {
    Factor b, a;
  };
  struct Shared {
    Stage stages[RoundedProduct::stages];
  };
  struct Values {
    float product[values];
    double sum[values];
  };

  FactorRows<T> b, a;
  int samples, positions, parts;
  const double* weights;
  double spacing;
  double* y;  // [o, i]; with several parts [parts, o, i], which are written

  // The next positions of a sample that has a weight, of samples before `last`.
  struct Cursor {
    int sample, position;
  };
  HD int with_weight(int sample, int last) const {
    while (sample < last && weights[sample] == 0) ++sample;
    return sample;
  }
  HD void advance(Cursor& at, int last) const {
    at.position += depth;
    if (at.position < positions) return;
    at = {with_weight(at.sample + 1, last), 0};
  }

  template <class Block>
  HD void fetch(const Block& block, Stage& stage, const Cursor& at, int o, int i) const {
    block.each_thread([&](int thread) {
      const int k = thread / row_chunks, chunk = thread % row_chunks, position = at.position + k,
                column = chunk * chunk_lanes;
      const bool row = position < positions;
      b.fetch(block, at.sample, position, row, o + column, stage.b.at(k, chunk));
      a.fetch(block, at.sample, position, row, i + column, stage.a.at(k, chunk));
    });
  }

  // Adds the products of 16-bit factors to a warp's tile.
  template <class Block, class Tile>
  HD static void multiply_halves(const Block& block, const Stage& stage, int row, int column,
                                 Tile& tile) {
    using Registers = typename Block::template PerLane<std::uint32_t[4]>;
    constexpr int step = 16, matrix = 8;
    unrolled<depth / step>([&](auto k) {
      Registers right[2];
      unrolled<2>([&](auto h) {
        block.load_transposed(right[h], [&](int lane) {
          const int of = lane / matrix;
          return &stage.a.at(k * step + of % 2 * matrix + lane % matrix,
                             (column / matrix + of / 2) ^ h * 2);
        });
      });
      unrolled<2>([&](auto h) {
        Registers left;
        block.load_transposed(left, [&](int lane) {
          const int of = lane / matrix;
          return &stage.b.at(k * step + of / 2 * matrix + lane % matrix,
                             (row / matrix + of % 2) ^ h * 2);
        });
        unrolled<4>([&](auto n) {
          block.template multiply<T>(left, right[n / 2], n % 2 * 2, [&](int lane) {
            return tile(lane).product + (h * 4 + n) * 4;
          });
        });
      });
    });
  }

  // The product for f32: each lane has 4 rows and 8 columns.
  template <class Block, class Tile>
  HD static void multiply_floats(const Block& block, const Stage& stage, int row, int column,
                                 Tile& tile) {
    block.each_lane([&](int lane) {
      const int rows = (row + lane / 4 * 4) / 4, columns = (column + lane % 4 * 8) / 4;
      for (int k = 0; k < depth; ++k) {
        const Pack<float, 4> left = floats(stage.b.at(k, rows));
        const Pack<float, 4> right[2] = {floats(stage.a.at(k, columns)),
                                         floats(stage.a.at(k, columns + 1))};
        unrolled<values>([&](auto e) {
          tile(lane).product[e] += left.value[e / 8] * right[e % 8 / 4].value[e % 4];
        });
      }
    });
  }
  HD static Pack<float, 4> floats(const FactorChunk& chunk) {
    return *reinterpret_cast<const Pack<float, 4>*>(chunk.data);
  }

  // The row and column within a warp's tile of a lane's value.
  HD static int row_of(int lane, int value) {
    if constexpr (sizeof(T) == 2) return value / 16 * 16 + value % 4 / 2 * 8 + lane / 4;
    return lane / 4 * 4 + value / 8;
  }
  HD static int column_of(int lane, int value) {
    if constexpr (sizeof(T) == 2) return value / 4 % 4 * 8 + lane % 4 * 2 + value % 2;
    return lane % 4 * 8 + value % 8;
  }

  // Adds the rounded products to the sums, and begins new products.
  HD void round(Values& tile, double weight) const {
    unrolled<values>([&](auto e) {
      tile.sum[e] += rounded_term(weight * static_cast<double>(tile.product[e]), spacing);
      tile.product[e] = 0;
    });
  }
  HD void write(const Values& tile, int part, int row, int column, int lane) const {
    const std::int64_t width = a.columns;
    unrolled<values>([&](auto e) {
      const int o = row + row_of(lane, e), i = column + column_of(lane, e);
      if (o >= b.columns || i >= a.columns) return;
      double& sum = y[(part * static_cast<std::int64_t>(b.columns) + o) * width + i];
      sum = parts == 1 ? sum + tile.sum[e] : tile.sum[e];
    });
  }

  // A block's tile of the sum, and its part of the samples.
  struct Work {
    int o, i, part, first, last;
  };
  HD Work work(std::int64_t index) const {
    const int across = (a.columns + tile - 1) / tile, down = (b.columns + tile - 1) / tile,
              part = static_cast<int>(index / (across * down));
    const Part range(samples, parts, part);
    return {static_cast<int>(index / across % down) * tile, static_cast<int>(index % across) * tile,
            part, static_cast<int>(range.first), static_cast<int>(range.last)};
  }
  template <class Block>
  using Lanes = typename Block::template PerLane<Values>;
  template <class Block>
  using Warps = typename Block::template PerWarp<Lanes<Block>>;

  // f(row, column, lanes) for the warps whose tiles have elements of the sum.
  template <class Block, class F>
  HD void each_tile(const Block& block, const Work& at, Warps<Block>& warps, const F& f) const {
    block.each_warp([&](int warp) {
      const int row = warp / warps_in_row * warp_tile, column = warp % warps_in_row * warp_tile;
      if (at.o + row < b.columns && at.i + column < a.columns) f(row, column, warps(warp));
    });
  }
  // Multiplies the positions of a stage and, after the last of a term, adds the rounded term.
  template <class Block>
  HD void add(const Block& block, const Stage& stage, const Work& at, const Cursor& used,
              Warps<Block>& warps) const {
    const int end = used.position + depth;
    const bool complete = end >= positions || end % product_chain == 0;
    each_tile(block, at, warps, [&](int row, int column, Lanes<Block>& lanes) {
      if constexpr (sizeof(T) == 2)
        multiply_halves(block, stage, row, column, lanes);
      else
        multiply_floats(block, stage, row, column, lanes);
      if (!complete) return;
      const double weight = weights[used.sample];
      block.each_lane([&](int lane) { round(lanes(lane), weight); });
    });
  }

  template <class Block>
  HD void operator()(const Block& block, Shared& shared, std::int64_t index) const {
    const Work at = work(index);
    Warps<Block> sums;
    each_tile(block, at, sums, [&](int, int, Lanes<Block>& lanes) {
      block.each_lane([&](int lane) { lanes(lane) = {}; });
    });
    Cursor used{with_weight(at.first, at.last), 0}, fetched = used;
    const auto fetch_next = [&](int stage) {
      if (fetched.sample < at.last) {
        fetch(block, shared.stages[stage], fetched, at.o, at.i);
        advance(fetched, at.last);
      }
      block.commit();
    };
    for (int stage = 0; stage + 1 < stages; ++stage) fetch_next(stage);
    for (int stage = 0; used.sample < at.last; stage = (stage + 1) % stages) {
      block.template wait<stages - 2>();
      block.sync();
      fetch_next((stage + stages - 1) % stages);  // where all threads have read
      add(block, shared.stages[stage], at, used, sums);
      advance(used, at.last);
    }
    each_tile(block, at, sums, [&](int row, int column, Lanes<Block>& lanes) {
      block.each_lane(
          [&](int lane) { write(lanes(lane), at.part, at.o + row, at.i + column, lane); });
    });
  }
};

// The number of parts that samples are divided into: as many as leave the fewest samples to do one
// after the other on an H100, which runs a block on each processor.
inline std::int64_t parts_of_samples(std::int64_t tiles, std::int64_t samples) {
  constexpr std::int64_t at_once = 132, most = 16;  // each part writes its sums
  std::int64_t best = 1, fewest = samples * ((tiles + at_once - 1) / at_once);
  for (std::int64_t parts = 2; parts <= std::min(most, samples); ++parts) {
    const std::int64_t rounds = (tiles * parts + at_once - 1) / at_once,
                       length = rounds * ((samples + parts - 1) / parts);
    if (length >= fewest) continue;
    best = parts;
    fewest = length;
  }
  return best;
}

template <class Exec>
bool DeviceBackend<Exec>::add_rounded_products(View b, View a, View w, double spacing, View y) {
  const Exec exec = execution("add_rounded_products", {&b, &a, &w, &y});
  const std::int64_t samples = b.size[0], positions = b.size[1], width = y.numel();
  constexpr std::int64_t most = std::int64_t{1} << 30;
  const bool fits = samples < most && positions < most && b.size[2] < most && a.size[2] < most;
  if (!exec.has_matrix_units() || b.dtype == Dtype::f64 || !fits) return false;
  if (samples == 0 || positions == 0 || width == 0) return true;
  dispatch_float(b.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (!std::is_same_v<T, double>) {
      constexpr std::int64_t tile = RoundedProduct<T>::tile;
      const std::int64_t tiles = ((b.size[2] + tile - 1) / tile) * ((a.size[2] + tile - 1) / tile),
                         parts = parts_of_samples(tiles, samples);
      const Scratch<double> partial(exec.device(), parts == 1 ? 0 : parts * width);
      exec.for_each_tile(tiles * parts,
                         RoundedProduct<T>{FactorRows<T>(b), FactorRows<T>(a),
                                           static_cast<int>(samples), static_cast<int>(positions),
                                           static_cast<int>(parts), w.as<const double>(), spacing,
                                           parts == 1 ? y.as<double>() : partial.data()});
      if (parts == 1) return;
      AxisList columns;
      columns.append({width, 1}, false);
      fold_parts(exec, FoldParts<SumFold>{columns, width, parts, partial.data(), 1, y});
    }
  });
  return true;
}

}  // namespace sotto
