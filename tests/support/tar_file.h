// Entries of tar archives.
#pragma once

#include <string>

#include <fmt/format.h>

// A header and the contents, filled up to whole blocks; `size` replaces the header's size.
inline std::string tar_entry(const std::string& name, const std::string& contents, char type = '0',
                             const std::string& size = "") {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  const std::string digits = size.empty() ? fmt::format("{:011o}", contents.size()) : size;
  header.replace(124, digits.size(), digits);
  header.replace(148, 8, 8, ' ');
  header[156] = type;
  header.replace(257, 5, "ustar");
  header.replace(263, 2, "00");
  unsigned sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  header.replace(148, 7, fmt::format("{:06o}", sum) + '\0');
  return header + contents + std::string((512 - contents.size() % 512) % 512, '\0');
}
