#include "core/threads/one_user.h"

#include "core/error.h"

namespace sotto {

OneUser::Call::Call(OneUser& object, const char* name, Access access) : object_(object) {
  thread_local char own;
  const void *user = nullptr, *self = &own;
  outermost_ = object.user_.compare_exchange_strong(user, self, std::memory_order_acquire);
  check(outermost_ || user == self,
        "{}: another thread is in a call of the same object; only one thread at a time may use it",
        name);
  check(outermost_ || access == Access::reads,
        "{}: called inside of another call of this object, which a loss function must not do",
        name);
}

OneUser::Call::~Call() {
  if (outermost_) object_.user_.store(nullptr, std::memory_order_release);
}

}  // namespace sotto
