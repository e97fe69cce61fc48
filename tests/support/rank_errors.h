// Errors of the ranks of a small training, for tests of what is refused on every rank.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/rank_training.h"

namespace sotto {

// The text of each rank's error, empty without one. The ranks' models are as they end.
struct RankErrors {
  std::vector<std::string> texts;
  std::vector<std::unique_ptr<RankTraining>> trainings;
};

// Runs the body on ranks; a rank whose body throws fails the others.
inline RankErrors rank_errors(int size, const RankBody& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(size));
  auto trainings =
      train_on_ranks(size, [&](RankTraining& training, const std::shared_ptr<Ranks>& ranks) {
        try {
          body(training, ranks);
        } catch (const std::exception& error) {
          texts[static_cast<std::size_t>(ranks->rank())] = error.what();
          ranks->fail(error.what());
        }
      });
  return {std::move(texts), std::move(trainings)};
}

// True if every rank's error contains `part`.
inline bool all_ranks_say(const std::vector<std::string>& texts, std::string_view part) {
  return std::ranges::all_of(texts, [&](const std::string& text) {
    UNSCOPED_INFO(text);
    return text.find(part) != std::string::npos;
  });
}

}  // namespace sotto
