// Guards an object that only one thread at a time may use: a second thread gets an error instead of
// a race.
#pragma once

#include <atomic>

namespace sotto {

class OneUser {
 public:
  enum class Access { reads, changes };
  // Marks a call of the object, by its name ("Engine::step"), while it lives. Throws
  // std::invalid_argument if another thread is inside a call, or if this thread is inside one and
  // the new call changes the object.
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
  std::atomic<const void*> user_ = nullptr;  // a thread, by the address of a variable of its own
};

}  // namespace sotto
