// The state that a rank's own thread and its communication thread share.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/ranks/operation.h"

namespace sotto {

struct Board {
  // The state of the rank's own thread, for people.
  struct Doing {
    std::string last = "no operation yet", waits_in;  // empty: it does not wait
    RankClock::time_point since = RankClock::now();
  };

  std::string doing_text() const;

  std::mutex mutex;
  std::condition_variable changed;  // for the communication thread
  std::condition_variable moved;    // for the rank's own
  std::vector<std::shared_ptr<Operation>> begun;
  std::optional<std::string> cause;  // of a failure of this rank
  std::shared_ptr<const RankFailure> failure;
  bool closing = false;
  Doing doing;
};

}  // namespace sotto
