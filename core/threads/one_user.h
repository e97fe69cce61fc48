// Objects that one thread at a time uses: a second one meets an error instead of a race.
#pragma once

#include <atomic>
#include <thread>

namespace sotto {

class OneUser {
 public:
  enum class Access { reads, changes };
  // A call, by its name ("Engine::step"), for as long as it lives. Throws std::invalid_argument
  // while another thread's lives, and inside of another call of this thread unless it only reads.
  class Call {
   public:
    Call(OneUser& object, const char* name, Access access);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();

   private:
    OneUser& object_;
    bool outermost_;
  };

 private:
  std::atomic<std::thread::id> user_ = std::thread::id();  // nobody
};

}  // namespace sotto
