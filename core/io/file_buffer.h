// Reads a file as a stream.
#pragma once

#include <streambuf>
#include <string>
#include <vector>

#include "core/io/file_place.h"

namespace sotto {

// A stream buffer on a descriptor from open_to_read(), which avoids the numbers of the standard
// streams; a std::ifstream may be given one of those. Throws SystemFailure, with the path, if the
// file cannot be opened or read.
class FileBuffer : public std::streambuf {
 public:
  explicit FileBuffer(const std::string& path);

 protected:
  int_type underflow() override;

 private:
  Descriptor file_;
  std::string path_;
  std::vector<char> buffer_;
};

}  // namespace sotto
