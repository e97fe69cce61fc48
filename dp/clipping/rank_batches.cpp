#include "dp/clipping/rank_batches.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/io/xxh64.h"
#include "core/ranks/ranks.h"
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

// One rank's part of a batch, as it tells the others: the number of units, and what must be equal
// on all ranks.
std::vector<double> part_of_batch(const Clipper& clipper) {
  std::vector<double> part{static_cast<double>(clipper.statistics().units), clipper.sensitivity(),
                           clipper.loss_scale()};
  const std::vector<double> bounds = clipper.bounds();
  part.insert(part.end(), bounds.begin(), bounds.end());
  part.push_back(hash_of_values(clipper.groups()));
  return part;
}

std::vector<std::vector<double>> told_by_all(Ranks& ranks, const std::vector<double>& own) {
  std::vector<std::vector<double>> all(static_cast<std::size_t>(ranks.size()),
                                       std::vector<double>(own.size()));
  std::vector<Ranks::Room> room;
  for (std::vector<double>& from : all) room.push_back(std::as_writable_bytes(std::span(from)));
  ranks.gather("parts of the batch", std::as_bytes(std::span(own)), std::move(room)).wait();
  return all;
}

}  // namespace

OwnUnits own_units(const Clipper& clipper, Ranks& ranks) {
  const std::vector<std::vector<double>> parts = told_by_all(ranks, part_of_batch(clipper));
  OwnUnits own;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    check(std::equal(parts[rank].begin() + 1, parts[rank].end(), parts[0].begin() + 1),
          "Clipper: rank {} clips with other bounds, another loss scale or other values of the "
          "parameters than rank 0",
          rank);
    if (rank == static_cast<std::size_t>(ranks.rank())) own.first = own.of_all_ranks;
    own.of_all_ranks += static_cast<std::size_t>(parts[rank][0]);
  }
  return own;
}

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
