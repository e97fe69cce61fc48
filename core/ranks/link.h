// The seam to what carries bytes between ranks: threads of one process, or MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/ranks/rank_failure.h"
#include "core/ranks/ranks.h"

namespace sotto {

// One rank's connections to the others. One thread, the communication thread, makes it and calls
// it; no call waits for another rank, but for the constructor and the destructor.
class Link {
 public:
  // Bytes under way. A destroyed one is withdrawn: its buffer is not used any more.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    virtual bool done() = 0;
  };
  // A small message.
  struct Notice {
    int from = -1;
    std::vector<std::byte> bytes;
  };
  static constexpr std::size_t max_notice_bytes = 1024;

  virtual ~Link() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int ranks_on_host() const = 0;
  virtual std::string host(int rank) const = 0;

  // Sends a copy of a notice of at most max_notice_bytes.
  virtual void notify(int to, Ranks::Bytes notice) = 0;
  // Receives a notice, if one has arrived; those of one rank come in the order in which it sent.
  virtual bool poll(Notice& notice) = 0;
  // False while notices are still to leave.
  virtual bool notices_sent() = 0;
  // The k-th send to a rank is for its k-th receive from here, which has the same size.
  virtual std::unique_ptr<Transfer> send(int to, Ranks::Bytes bytes) = 0;
  virtual std::unique_ptr<Transfer> receive(int from, Ranks::Room room) = 0;

  // True if the destructor waits for the other ranks' destructors.
  virtual bool ends_together() const = 0;
  // Called once when the run has failed, after the others were notified. by_itself: the failed rank
  // reported the failure; it was not detected by a timeout.
  virtual void failed(const RankFailure& failure, bool by_itself) = 0;
  // Called last after a failure, at the latest a second later. Ends the process if the ranks are
  // processes: the others end, too.
  virtual void abandon() = 0;
};

}  // namespace sotto
