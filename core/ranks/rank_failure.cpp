#include "core/ranks/rank_failure.h"

#include <utility>

#include <fmt/format.h>

namespace sotto {

namespace {

// More would hide the cause.
constexpr std::size_t max_ranks_named = 16;

std::string text_of(int rank, const std::string& cause,
                    const std::vector<RankFailure::Known>& ranks) {
  std::string text = fmt::format("rank {} of {} on {}: {}", rank, ranks.size(),
                                 ranks[static_cast<std::size_t>(rank)].host, cause);
  for (std::size_t k = 0; k < ranks.size() && k < max_ranks_named; ++k)
    text += fmt::format("\n  rank {} on {}: {}", k, ranks[k].host, ranks[k].doing);
  if (ranks.size() > max_ranks_named)
    text += fmt::format("\n  and {} more ranks", ranks.size() - max_ranks_named);
  return text;
}

}  // namespace

RankFailure::RankFailure(int rank, std::string cause, std::vector<Known> ranks)
    : std::runtime_error(text_of(rank, cause, ranks)),
      rank_(rank),
      cause_(std::move(cause)),
      ranks_(std::move(ranks)) {}

}  // namespace sotto
