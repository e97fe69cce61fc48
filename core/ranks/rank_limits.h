// The time after which a rank counts as failed.
#pragma once

namespace sotto {

// The limits of launched_ranks().
struct RankLimits {
  // A rank that sends nothing for so long is dead, stopped or unreachable; its communication
  // thread sends a heartbeat five times as often, whatever else the rank does.
  double silence_seconds = 5;
  // A rank that waits in an operation for others gives them so long to arrive there: longer than
  // the longest work that one rank does alone, such as an evaluation.
  double operation_seconds = 3600;
};

}  // namespace sotto
