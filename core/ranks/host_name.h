// The name of this host.
#pragma once

#include <string>

namespace sotto {

std::string host_name();

}  // namespace sotto
