#include "dp/clipping/rank_batches.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/io/xxh64.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::inline dp {

namespace {

// A hash of the parameters' values, in the 48 bits that a double compares exactly.
double hash_of_values(const std::vector<ClipGroup>& groups) {
  std::uint64_t hash = 0;
  for (const ClipGroup& group : groups) {
    for (const Parameter* parameter : group.parameters) {
      const Tensor value = contiguous(parameter->value).to(cpu);
      hash = xxh64({static_cast<const std::byte*>(value.view().data), value.bytes()}, hash);
    }
  }
  return static_cast<double>(hash >> 16);
}

// A number that two sets of units hardly share, in the 48 bits that a double holds exactly. That of
// a union of disjoint sets is the sum of theirs, modulo 2^48.
constexpr std::uint64_t hashes = std::uint64_t{1} << 48;
std::uint64_t sum_of_hashes(std::span<const std::int64_t> units) {
  std::uint64_t sum = 0;
  for (const std::int64_t unit : units) sum += xxh64(std::as_bytes(std::span(&unit, 1)));
  return sum % hashes;
}

// One rank's part of a batch, as it tells the others: the number and the hashes of its units, and
// what must be equal on all ranks.
std::vector<double> part_of_batch(const Clipper& clipper, std::span<const std::int64_t> own) {
  std::vector<double> part{static_cast<double>(own.size()), static_cast<double>(sum_of_hashes(own)),
                           clipper.sensitivity(), clipper.loss_scale()};
  const std::vector<double> bounds = clipper.bounds();
  part.insert(part.end(), bounds.begin(), bounds.end());
  part.push_back(hash_of_values(clipper.groups()));
  return part;
}

// The parameters in the order in which backward completes their sums: it reaches the last of the
// model first, and a group is clipped when all its parameters were reached.
std::vector<Parameter*> settling_order(std::vector<ClipGroup> groups, const nn::Shards& shards) {
  const auto place = [&](const Parameter* parameter) { return shards.place(*parameter); };
  for (ClipGroup& group : groups)
    std::ranges::sort(group.parameters, std::ranges::greater(), place);
  std::ranges::sort(groups, std::ranges::greater(),
                    [&](const ClipGroup& group) { return place(group.parameters.back()); });
  std::vector<Parameter*> all;
  for (const ClipGroup& group : groups)
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

}  // namespace

PartsOfBatch::PartsOfBatch(const Clipper& clipper, std::span<const std::int64_t> own, Ranks& ranks)
    : own_(part_of_batch(clipper, own)),
      all_(static_cast<std::size_t>(ranks.size()), std::vector<double>(own_.size())) {
  std::vector<Ranks::Room> room;
  for (std::vector<double>& from : all_) room.push_back(std::as_writable_bytes(std::span(from)));
  pending_ = ranks.gather("parts of the batch", std::as_bytes(std::span(own_)), std::move(room));
}

void PartsOfBatch::check_division(std::span<const std::int64_t> drawn) {
  pending_.wait();
  std::uint64_t clipped = 0, hash = 0;
  for (std::size_t rank = 0; rank < all_.size(); ++rank) {
    check(std::equal(all_[rank].begin() + 2, all_[rank].end(), all_[0].begin() + 2),
          "Clipper: rank {} clips with other bounds, another loss scale or other values of the "
          "parameters than rank 0",
          rank);
    clipped += static_cast<std::uint64_t>(all_[rank][0]);
    hash += static_cast<std::uint64_t>(all_[rank][1]);
  }
  check(clipped == drawn.size(), "Clipper: {} units were drawn, and {} clipped by all ranks",
        drawn.size(), clipped);
  check(hash % hashes == sum_of_hashes(drawn),
        "Clipper: of {} units that were drawn, some were clipped by several ranks and some by none",
        drawn.size());
}

SharedBatch::SharedBatch(const Clipper& clipper, std::vector<std::int64_t> own_units,
                         const std::shared_ptr<const nn::Shards>& shards)
    : units(std::move(own_units)),
      parts(clipper, units, shards->ranks()),
      sums(shards, settling_order(clipper.groups(), *shards)) {}

std::vector<double> counts_on_rank_0(Ranks& ranks, const std::vector<double>& own) {
  std::vector<double> total(own.size());
  for (const auto& bytes : ranks.collect("clip counts", std::as_bytes(std::span(own)))) {
    std::vector<double> counts(own.size());
    check(bytes.size() == own.size() * sizeof(double), "Clipper: ranks count different things");
    std::memcpy(counts.data(), bytes.data(), bytes.size());
    for (std::size_t k = 0; k < total.size(); ++k) total[k] += counts[k];
  }
  return total;
}

}  // namespace sotto::inline dp
