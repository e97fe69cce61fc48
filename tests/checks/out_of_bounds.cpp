// Has the library read a byte behind the end of an array, which only its sanitizers see.
#include <span>
#include <vector>

#include "core/io/xxh64.h"

int main() {
  const std::vector<std::byte> bytes(16);
  return sotto::xxh64(std::span(bytes.data(), bytes.size() + 1)) == 0 ? 1 : 0;
}
