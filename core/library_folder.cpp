#include "core/library_folder.h"

#include <dlfcn.h>

namespace sotto {

std::string beside_library(const std::string& file) {
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&beside_library), &here) == 0 || !here.dli_fname) return file;
  const std::string library = here.dli_fname;
  return library.substr(0, library.rfind('/') + 1) + file;
}

}  // namespace sotto
