#include "kernels/tf32.h"

#include <cstdlib>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/error.h"

namespace sotto {

namespace {

thread_local int living = 0;

std::mutex mutex;
std::optional<bool> asked;  // set by the program
std::optional<bool> held;   // the setting that a GPU has used

bool asked_by_environment() {
  const char* const given = std::getenv("SOTTO_TF32");
  const std::string text = given ? given : "0";
  check(text == "0" || text == "1", "SOTTO_TF32 is '{}', which is neither 0 nor 1", text);
  return text == "1";
}

}  // namespace

void use_tf32(bool wanted) {
  const std::lock_guard lock(mutex);
  if (held && *held != wanted)
    throw std::logic_error("use_tf32: a GPU has already been used with the other setting");
  asked = wanted;
}

bool tf32_used() {
  const std::lock_guard lock(mutex);
  if (!held) held = asked ? *asked : asked_by_environment();
  return *held;
}

NoTf32Scope::NoTf32Scope() { ++living; }
NoTf32Scope::~NoTf32Scope() { --living; }
bool NoTf32Scope::wanted() { return living > 0; }

}  // namespace sotto
