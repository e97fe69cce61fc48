// The files that are installed beside the library and loaded when they are needed.
#pragma once

#include <string>

namespace sotto {

// The path of a file in the folder of libsotto.so, or of the program that contains it.
std::string beside_library(const std::string& file);

}  // namespace sotto
