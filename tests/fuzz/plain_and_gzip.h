// Compresses a fuzzer's input: a reader takes it for the same file.
#pragma once

#include <cstdlib>
#include <string>

#include <zlib.h>

inline void require(bool fact) {
  if (!fact) std::abort();
}

inline std::string compressed(const std::string& plain) {
  z_stream z{};
  require(deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&z, plain.size()) + 32, '\0');
  std::string input = plain;
  z.next_in = reinterpret_cast<Bytef*>(input.data());
  z.avail_in = static_cast<uInt>(input.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  require(deflate(&z, Z_FINISH) == Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  return packed;
}

inline bool compressed_already(const std::string& bytes) { return bytes.starts_with("\x1f\x8b"); }
