#include "dp/clipping/rank_batches.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/io/xxh64.h"
#include "core/ranks/collectives.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// A hash of what must be equal on all ranks: the sensitivity, the loss scale, the bounds, and the
// values of the parameters.
std::uint64_t hash_of_settings(const Clipper& clipper) {
  std::vector<double> numbers{clipper.sensitivity(), clipper.loss_scale()};
  const std::vector<double> bounds = clipper.bounds();
  numbers.insert(numbers.end(), bounds.begin(), bounds.end());
  std::uint64_t hash = xxh64(std::as_bytes(std::span(numbers)));
  for (const ClipGroup& group : clipper.groups()) {
    for (const Parameter* parameter : group.parameters) {
      const Tensor value = contiguous(parameter->value).to(cpu);
      hash = xxh64({static_cast<const std::byte*>(value.view().data), value.bytes()}, hash);
    }
  }
  return hash;
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
    : own_{digest_of(own), hash_of_settings(clipper)},
      all_(static_cast<std::size_t>(ranks.size())) {
  std::vector<Ranks::Room> room;
  for (Part& from : all_) room.push_back(std::as_writable_bytes(std::span(&from, 1)));
  pending_ =
      ranks.all_gather("parts of the batch", std::as_bytes(std::span(&own_, 1)), std::move(room));
}

void PartsOfBatch::check_division(const UnitDigest& drawn) {
  pending_.wait();
  UnitDigest clipped;
  for (std::size_t rank = 0; rank < all_.size(); ++rank) {
    check(all_[rank].settings == all_[0].settings,
          "Clipper: rank {} clips with other bounds, another loss scale or other values of the "
          "parameters than rank 0",
          rank);
    clipped += all_[rank].units;
  }
  check(clipped.units == drawn.units, "Clipper: {} units were drawn, and {} clipped by all ranks",
        drawn.units, clipped.units);
  check(clipped == drawn,
        "Clipper: of {} units that were drawn, some were clipped by several ranks and some by none",
        drawn.units);
}

SharedBatch::SharedBatch(const Clipper& clipper, std::vector<std::int64_t> own_units,
                         std::shared_ptr<const nn::Shards> owners)
    : shards(std::move(owners)),
      units(std::move(own_units)),
      parts(clipper, units, shards->ranks()),
      sums(shards, settling_order(clipper.groups(), *shards)) {}

std::vector<double> counts_on_rank_0(Ranks& ranks, const std::vector<double>& own) {
  std::vector<double> total(own.size());
  for (const std::vector<double>& counts : gather(ranks, "clip counts", own)) {
    check(counts.size() == own.size(), "Clipper: ranks count different things");
    for (std::size_t k = 0; k < total.size(); ++k) total[k] += counts[k];
  }
  return total;
}

}  // namespace sotto
