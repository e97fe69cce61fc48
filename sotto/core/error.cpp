#include "sotto/core/error.h"

namespace sotto {

void fail(const std::string& text) { throw std::invalid_argument(text); }

}  // namespace sotto
