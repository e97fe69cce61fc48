// Noise, and the update of all parameters: one launch for the samples that their first word
// decides, one for the others, and one for the updates.
#pragma once

#include <vector>

#include "core/cuda/capture.h"
#include "core/random/rounded_gaussian.h"
#include "kernels/cuda/cuda_map.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/scratch.h"
#include "kernels/host_device/optimizer_update.h"

namespace sotto {

// The words of a keystream, computed block by block.
class KeystreamWords {
 public:
  HD explicit KeystreamWords(const ChaChaStream& stream) : stream_(stream) {}
  HD std::uint64_t operator()() {
    if (used_ == RoundedGaussian::words_in_block) {
      block_ = chacha20_block(stream_, 0);
      ++stream_.block;
      used_ = 0;
    }
    return word(block_, used_++);
  }
  HD static std::uint64_t word(const ChaChaBlock& block, std::size_t i) {
    return block.word[2 * i] | std::uint64_t{block.word[2 * i + 1]} << 32;
  }

 private:
  ChaChaStream stream_;
  ChaChaBlock block_;
  std::size_t used_ = RoundedGaussian::words_in_block;
};

// One block of samples. An undecided sample is stored as its first word, and marked.
struct DrawBlock {
  const RoundedGaussian* gaussian;
  ChaChaStream stream;
  std::int64_t* y;
  std::uint8_t* undecided;  // one bit per sample of each block

  HD void operator()(std::int64_t block) const {
    constexpr std::size_t draws = RoundedGaussian::words_in_block;
    const ChaChaBlock words = chacha20_block(stream, static_cast<std::uint64_t>(block));
    unsigned marks = 0;
    for (std::size_t i = 0; i < draws; ++i) {
      const std::uint64_t word = KeystreamWords::word(words, i);
      const bool certain = gaussian->certain(word);
      marks |= certain ? 0u : 1u << i;
      y[static_cast<std::size_t>(block) * draws + i] =
          certain ? gaussian->decided(word) : static_cast<std::int64_t>(word);
    }
    undecided[block] = static_cast<std::uint8_t>(marks);
  }
};

// Samples that share one stream of further words (RoundedGaussian::fill): each `group_values`
// samples from the beginning of an array on.
struct DrawGroup {
  std::uint64_t block;
  std::int64_t draws;
};

// Decides the undecided samples of a group, in order.
struct DecideGroup {
  const RoundedGaussian* gaussian;
  ChaChaStream stream;
  const DrawGroup* groups;
  const std::uint8_t* undecided;
  std::int64_t* y;

  HD void operator()(std::int64_t index) const {
    constexpr std::uint64_t in_block = RoundedGaussian::words_in_block;
    const DrawGroup group = groups[index];
    ChaChaStream first = stream;
    first.block += group.block;
    KeystreamWords more(RoundedGaussian::more_words(first));
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(group.draws); ++i) {
      if (!(undecided[group.block + i / in_block] >> i % in_block & 1)) continue;
      std::int64_t& draw = y[group.block * in_block + i];
      draw = gaussian->draw(static_cast<std::uint64_t>(draw), more);
    }
  }
};

inline std::vector<DrawGroup> draw_groups(std::span<const std::int64_t> counts) {
  std::vector<DrawGroup> groups;
  constexpr auto max = static_cast<std::int64_t>(RoundedGaussian::group_values);
  std::uint64_t block = 0;
  for (const std::int64_t count : counts) {
    for (std::int64_t at = 0; at < count; at += max) {
      const std::int64_t draws = count - at < max ? count - at : max;
      groups.push_back({block, draws});
      block += RoundedGaussian::blocks_for(static_cast<std::size_t>(draws));
    }
  }
  return groups;
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
  const std::vector<DrawGroup> groups = draw_groups(counts);
  if (groups.empty()) return;
  const std::uint64_t blocks =
      groups.back().block +
      RoundedGaussian::blocks_for(static_cast<std::size_t>(groups.back().draws));
  const Scratch<RoundedGaussian> there(exec.device(), 1);
  bring(exec, std::span(&gaussian, 1), there);
  const Scratch<DrawGroup> group_table(exec.device(), static_cast<std::int64_t>(groups.size()));
  bring(exec, std::span<const DrawGroup>(groups), group_table);
  const Scratch<std::uint8_t> undecided(exec.device(), static_cast<std::int64_t>(blocks));
  exec.for_each(static_cast<std::int64_t>(blocks),
                DrawBlock{there.data(), stream, y.as<std::int64_t>(), undecided.data()});
  exec.for_each(static_cast<std::int64_t>(groups.size()),
                DecideGroup{there.data(), stream, group_table.data(), undecided.data(),
                            y.as<std::int64_t>()});
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
    std::int64_t low = 0, high = count;  // the array's index is in [low, high)
    while (high - low > 1) {
      const std::int64_t middle = (low + high) / 2;
      (arrays[middle].first <= index ? low : high) = middle;
    }
    const UpdateArray& array = arrays[low].array;
    const std::int64_t i = index - arrays[low].first;
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
