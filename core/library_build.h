// The version and commit that the library was built from.
#pragma once

#include <string>

namespace sotto {

// "0.1.0, commit 25383b9fd0"; "25383b9fd0-dirty" if files of the clone were changed since; without
// a commit if it was not built in a clone.
std::string library_build();

}  // namespace sotto
