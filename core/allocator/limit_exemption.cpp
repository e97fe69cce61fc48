#include "core/allocator/limit_exemption.h"

namespace sotto {

namespace {

constinit thread_local bool exempt_now = false;

}  // namespace

LimitExemption::LimitExemption(bool exempt) : before_(exempt_now) {
  exempt_now = exempt_now || exempt;
}

LimitExemption::~LimitExemption() { exempt_now = before_; }

bool LimitExemption::holds() { return exempt_now; }

}  // namespace sotto
