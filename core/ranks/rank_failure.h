// The failure of a distributed run: one rank's, thrown on every rank.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace sotto {

// Its text names the rank that failed, its host and the cause, and then all ranks and what each was
// last known to do.
class RankFailure : public std::runtime_error {
 public:
  // An entry for each rank.
  struct Known {
    std::string host;   // its name
    std::string doing;  // its operation, or its last message, for people
  };
  // `rank` failed by `cause`; `ranks` has an entry for each rank.
  RankFailure(int rank, std::string cause, std::vector<Known> ranks);

  int rank() const { return rank_; }
  const std::string& host() const { return ranks_[static_cast<std::size_t>(rank_)].host; }
  const std::string& cause() const { return cause_; }
  // All ranks, as far as this one knows.
  const std::vector<Known>& ranks() const { return ranks_; }

 private:
  int rank_;
  std::string cause_;
  std::vector<Known> ranks_;
};

}  // namespace sotto
