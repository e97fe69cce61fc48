// Where the bytes of a zip archive's entries lie, so that stored ones can be mapped: libzip does
// not tell.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "core/io/file_context.h"

namespace sotto::weights {

// The offsets of the entries' bytes in the file, by name. Throws std::invalid_argument, beginning
// with the context, if the list at the end of the archive and the headers of entries disagree.
std::map<std::string, std::size_t> zip_places(std::span<const std::byte> archive,
                                              const FileContext& context);

}  // namespace sotto::weights
