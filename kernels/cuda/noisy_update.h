// Noise, and the update of all parameters: one launch for the samples that their first word decides
// and for further words, one for the other samples, and one for the updates. Tables from the host
// have a line for each array.
#pragma once

#include <bit>
#include <vector>

#include "core/cuda/capture.h"
#include "core/random/rounded_gaussian.h"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/scratch.h"
#include "kernels/host_device/optimizer_update.h"

namespace sotto {

inline constexpr std::uint64_t words_in_block = RoundedGaussian::words_in_block;

HD inline std::uint64_t word_of(const ChaChaBlock& block, std::uint64_t i) {
  return block.word[2 * i] | std::uint64_t{block.word[2 * i + 1]} << 32;
}

// One block of samples, written `lanes` at a time. An undecided sample is stored as its first word,
// and marked.
template <int lanes>
struct DrawBlock {
  const RoundedGaussian* gaussian;
  ChaChaStream stream;
  std::int64_t* y;
  std::uint8_t* undecided;  // one bit per sample of each block

  HD void operator()(std::int64_t block) const {
    const ChaChaBlock words = chacha20_block(stream, static_cast<std::uint64_t>(block));
    unsigned marks = 0;
    for (std::uint64_t i = 0; i < words_in_block; i += lanes) {
      Pack<std::int64_t, lanes> draws;
      for (std::uint64_t lane = 0; lane < lanes; ++lane) {
        const std::uint64_t word = word_of(words, i + lane);
        const bool certain = gaussian->certain(word);
        marks |= certain ? 0u : 1u << (i + lane);
        draws.value[lane] = certain ? gaussian->decided(word) : static_cast<std::int64_t>(word);
      }
      std::int64_t* const to = y + static_cast<std::uint64_t>(block) * words_in_block + i;
      *reinterpret_cast<Pack<std::int64_t, lanes>*>(to) = draws;
    }
    undecided[block] = static_cast<std::uint8_t>(marks);
  }
};

// An array of samples, and the numbers of its first group and block among those of all arrays.
struct DrawArray {
  std::int64_t first_group;
  std::uint64_t first_block;
  std::int64_t draws;
};

// Samples that share one stream of further words (RoundedGaussian::fill): each `group_values`
// samples from the beginning of an array on.
struct DrawGroup {
  std::uint64_t block;
  std::int64_t draws;

  HD DrawGroup(const DrawArray* arrays, std::int64_t count, std::int64_t group) {
    constexpr auto max = static_cast<std::int64_t>(RoundedGaussian::group_values);
    const DrawArray& array = array_of(arrays, count, &DrawArray::first_group, group);
    const std::int64_t within = group - array.first_group, left = array.draws - within * max;
    block = array.first_block + static_cast<std::uint64_t>(within) * RoundedGaussian::group_blocks;
    draws = left < max ? left : max;
  }
  HD ChaChaStream further(ChaChaStream stream) const {
    stream.block += block;
    return RoundedGaussian::more_words(stream);
  }
};

// As many blocks of further words as nearly all groups need: 12 or 13 on average, more than 16 in
// one of 23 to 93, as the standard deviation has it (counted with 4,096 groups).
inline constexpr std::int64_t blocks_ahead = 16;

// One block of a group's further words.
struct FurtherBlock {
  ChaChaStream stream;
  const DrawArray* arrays;
  std::int64_t count;
  ChaChaBlock* ahead;

  HD void operator()(std::int64_t index) const {
    const DrawGroup group(arrays, count, index / blocks_ahead);
    ahead[index] =
        chacha20_block(group.further(stream), static_cast<std::uint64_t>(index % blocks_ahead));
  }
};

// All blocks of samples, then those of further words.
template <int lanes>
struct DrawBlocks {
  DrawBlock<lanes> draw;
  FurtherBlock further;
  std::int64_t blocks;  // of samples

  HD void operator()(std::int64_t index) const {
    if (index < blocks)
      draw(index);
    else
      further(index - blocks);
  }
};

// A group's further words, in order: those of `ahead`, then blocks made one by one.
class FurtherWords {
 public:
  HD FurtherWords(const ChaChaStream& stream, const ChaChaBlock* ahead)
      : stream_(stream), ahead_(ahead) {}
  HD std::uint64_t operator()() {
    const std::uint64_t block = used_ / words_in_block, i = used_++ % words_in_block;
    if (block < static_cast<std::uint64_t>(blocks_ahead)) return word_of(ahead_[block], i);
    if (i == 0) block_ = chacha20_block(stream_, block);
    return word_of(block_, i);
  }

 private:
  ChaChaStream stream_;
  const ChaChaBlock* ahead_;
  ChaChaBlock block_;
  std::uint64_t used_ = 0;
};

// The undecided samples of a group, in order.
class UndecidedDraws {
 public:
  HD UndecidedDraws(const std::uint8_t* marks, std::int64_t draws)
      : marks_(marks),
        draws_(draws),
        blocks_(static_cast<std::int64_t>(
            RoundedGaussian::blocks_for(static_cast<std::size_t>(draws)))) {}
  // The next one's index in the group; at least the number of draws if there is none.
  HD std::int64_t operator()() {
    constexpr int together = 8;  // blocks, read at the same time
    while (left_ == 0 && next_ < blocks_) {
      for (int k = 0; k < together; ++k) {
        const std::uint64_t mark = next_ + k < blocks_ ? marks_[next_ + k] : 0;
        left_ |= mark << words_in_block * k;
      }
      first_ = next_ * static_cast<std::int64_t>(words_in_block);
      next_ += together;
    }
    if (left_ == 0) return draws_;
    const int bit = std::countr_zero(left_);
    left_ &= left_ - 1;
    return first_ + bit;
  }

 private:
  const std::uint8_t* marks_;
  std::int64_t draws_, blocks_, next_ = 0, first_ = 0;
  std::uint64_t left_ = 0;  // a bit for each sample from first_ on
};

// Decides the undecided samples of groups. One thread takes a group's samples in order, because
// each sample starts with the words that the one before has left. All threads of a warp decide at
// the same time, each its next undecided sample. Counted with 4,096 groups: a group has 63
// undecided samples and uses 101 words. A warp of 8 groups decides 75 times and uses 207 words in
// sequence; one of 32 groups would use 347.
struct DecideGroups {
  static constexpr std::int64_t together = 8;
  const RoundedGaussian* gaussian;
  ChaChaStream stream;
  const DrawArray* arrays;
  std::int64_t count, groups;
  const ChaChaBlock* ahead;
  const std::uint8_t* undecided;
  std::int64_t* y;

  template <class Team>
  HD void operator()(const Team& team, std::int64_t index) const {
    for (std::int64_t k = team.rank(); k < together; k += team.size()) {
      if (index * together + k < groups) decide(index * together + k);
    }
  }

 private:
  HD void decide(std::int64_t index) const {
    const DrawGroup group(arrays, count, index);
    FurtherWords more(group.further(stream), ahead + index * blocks_ahead);
    UndecidedDraws next(undecided + group.block, group.draws);
    for (std::int64_t i = next(); i < group.draws; i = next()) {
      std::int64_t& draw = y[group.block * words_in_block + static_cast<std::uint64_t>(i)];
      draw = gaussian->draw(static_cast<std::uint64_t>(draw), more);
    }
  }
};

inline std::vector<DrawArray> draw_arrays(std::span<const std::int64_t> counts) {
  std::vector<DrawArray> arrays;
  constexpr auto max = static_cast<std::int64_t>(RoundedGaussian::group_values);
  std::int64_t group = 0;
  std::uint64_t block = 0;
  for (const std::int64_t count : counts) {
    if (count == 0) continue;
    arrays.push_back({group, block, count});
    group += (count + max - 1) / max;
    block += RoundedGaussian::blocks_for(static_cast<std::size_t>(count));
  }
  return arrays;
}

// Copies values of the host to the device, for the duration of one primitive.
template <class Exec, class T>
void bring(const Exec& exec, std::span<const T> values, const Scratch<T>& to) {
  exec.bring(values.data(), to.data(), values.size_bytes());
}

template <class Exec>
void DeviceBackend<Exec>::rounded_gaussian(const RoundedGaussian& gaussian,
                                           const ChaChaStream& stream,
                                           std::span<const std::int64_t> counts, View y) {
  refuse_capture("secret randomness, which must never repeat");
  const Exec exec = execution("rounded_gaussian", {&y});
  const std::vector<DrawArray> arrays = draw_arrays(counts);
  if (arrays.empty()) return;
  const DrawArray& last = arrays.back();
  const std::uint64_t last_blocks =
      RoundedGaussian::blocks_for(static_cast<std::size_t>(last.draws));
  const auto blocks = static_cast<std::int64_t>(last.first_block + last_blocks);
  const auto count = static_cast<std::int64_t>(arrays.size());
  const auto groups = last.first_group +
                      static_cast<std::int64_t>((last_blocks + RoundedGaussian::group_blocks - 1) /
                                                RoundedGaussian::group_blocks);
  const Scratch<RoundedGaussian> there(exec.device(), 1);
  bring(exec, std::span(&gaussian, 1), there);
  const Scratch<DrawArray> table(exec.device(), count);
  bring(exec, std::span<const DrawArray>(arrays), table);
  const Scratch<std::uint8_t> undecided(exec.device(), blocks);
  const Scratch<ChaChaBlock> ahead(exec.device(), groups * blocks_ahead);
  auto* const draws = y.as<std::int64_t>();
  with_columns<std::int64_t>(aligned(draws), [&](auto lanes) {
    exec.for_each(blocks + groups * blocks_ahead,
                  DrawBlocks<lanes>{{there.data(), stream, draws, undecided.data()},
                                    {stream, table.data(), count, ahead.data()},
                                    blocks});
  });
  const DecideGroups decide{there.data(), stream,       table.data(),     count,
                            groups,       ahead.data(), undecided.data(), draws};
  exec.for_each_team((groups + decide.together - 1) / decide.together, 1, decide);
}

// An array, and the index of its first element among those of all arrays.
struct PlacedArray {
  UpdateArray array;
  std::int64_t first;
};

// Updates element `index` of all arrays together.
struct UpdateEach {
  const PlacedArray* arrays;
  std::int64_t count;
  std::int32_t* faults;

  HD void operator()(std::int64_t index) const {
    const PlacedArray& placed = array_of(arrays, count, &PlacedArray::first, index);
    const UpdateArray& array = placed.array;
    const std::int64_t i = index - placed.first;
    UpdateFault fault = UpdateFault::none;
    with_functor(UpdateRules{}, array.rule, [&]<class Rule>(std::type_identity<Rule>) {
      fault = array.dtype == Dtype::f64 ? update<double>(array, Rule{}, i)
                                        : update<float>(array, Rule{}, i);
    });
    // All threads that write here write 1.
    if (fault != UpdateFault::none) faults[static_cast<int>(fault) - 1] = 1;
  }

 private:
  template <class T, class Rule>
  HD static UpdateFault update(const UpdateArray& array, Rule rule, std::int64_t i) {
    const int states = count_states(array);
    return array.noise ? update_element<T, true>(array, rule, states, i)
                       : update_element<T, false>(array, rule, states, i);
  }
};

template <class Exec>
void DeviceBackend<Exec>::update(std::span<const UpdateArray> arrays, View faults) {
  refuse_capture("an update, whose constants the host computes");
  const Exec exec = execution("update", {&faults});
  std::vector<PlacedArray> placed;
  std::int64_t elements = 0;
  for (const UpdateArray& array : arrays) {
    if (array.count == 0) continue;
    placed.push_back({array, elements});
    elements += array.count;
  }
  if (placed.empty()) return;
  const auto count = static_cast<std::int64_t>(placed.size());
  const Scratch<PlacedArray> table(exec.device(), count);
  bring(exec, std::span<const PlacedArray>(placed), table);
  exec.for_each(elements, UpdateEach{table.data(), count, faults.as<std::int32_t>()});
}

}  // namespace sotto
