#include "nn/data/images/encode_png.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <zlib.h>

#include "core/error.h"

namespace sotto {

namespace {

std::string big_endian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

// PNG specification (ISO/IEC 15948), section 5.3: length, type, data, CRC of type and data.
std::string chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  const uLong crc =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(data.size()) + body + big_endian(crc);
}

std::string compressed(const std::string& plain) {
  uLongf size = compressBound(plain.size());
  std::string packed(size, '\0');
  const int status = compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                              reinterpret_cast<const Bytef*>(plain.data()), plain.size());
  if (status != Z_OK) throw SystemFailure("encode_png: no memory to compress");
  packed.resize(size);
  return packed;
}

char to_byte(float value) {
  return static_cast<char>(std::lround(255 * std::clamp(value, 0.0F, 1.0F)));
}

}  // namespace

std::string encode_png(const Tensor& picture) {
  check(picture.defined() && picture.rank() == 3 && picture.dtype() == Dtype::f32 &&
            picture.device() == cpu && picture.contiguous() && picture.numel() > 0 &&
            (picture.size(0) == 1 || picture.size(0) == 3),
        "encode_png: a picture is to be [1 or 3, h, w] f32, row-major on the CPU");
  const std::int64_t c = picture.size(0), h = picture.size(1), w = picture.size(2);
  const float* const x = picture.data<float>();
  std::string rows;
  for (std::int64_t i = 0; i < h; ++i) {
    rows += '\0';  // the row is not filtered
    for (std::int64_t j = 0; j < w; ++j) {
      for (std::int64_t channel = 0; channel < c; ++channel)
        rows += to_byte(x[(channel * h + i) * w + j]);
    }
  }
  // Section 11.2.2: 8 bits; grey is colour type 0, red, green and blue 2; the rest as usual.
  const std::string form{8, static_cast<char>(c == 1 ? 0 : 2), 0, 0, 0};
  const std::string header =
      big_endian(static_cast<std::uint64_t>(w)) + big_endian(static_cast<std::uint64_t>(h)) + form;
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", compressed(rows)) +
         chunk("IEND", "");
}

}  // namespace sotto
