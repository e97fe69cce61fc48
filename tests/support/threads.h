// Changes the number of threads for the duration of a test.
#pragma once

#include "core/threads/parallel.h"

namespace sotto {

// Sets the number of threads; the destructor restores the old one.
class Threads {
 public:
  explicit Threads(int count) : before_(thread_count()) { set_thread_count(count); }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace sotto
