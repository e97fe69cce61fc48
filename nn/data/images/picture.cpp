#include "nn/data/images/picture.h"

#include "nn/data/expect.h"
#include "nn/data/file_kind.h"

namespace sotto {

namespace {

// Numbers of a TIFF file, in either order of bytes.
class TiffNumbers {
 public:
  explicit TiffNumbers(std::span<const std::uint8_t> bytes)
      : bytes_(bytes), big_endian_(bytes.size() >= 2 && bytes[0] == 'M') {}

  // The number of `count` <= 4 bytes at an offset; 0 beyond the end.
  std::uint32_t at(std::size_t offset, std::size_t count) const {
    if (offset > bytes_.size() || count > bytes_.size() - offset) return 0;
    std::uint32_t y = 0;
    for (std::size_t k = 0; k < count; ++k) {
      y = y << 8 | bytes_[offset + (big_endian_ ? k : count - 1 - k)];
    }
    return y;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  bool big_endian_;
};

}  // namespace

// TIFF 6.0, section 2: byte order, 42, the directory's offset; there the number of entries, and
// entries of 12 bytes: tag, type, count, value.
int exif_orientation(std::span<const std::uint8_t> exif) {
  constexpr std::uint32_t orientation_tag = 0x0112, short_type = 3, entry_bytes = 12;
  const TiffNumbers numbers(exif);
  if (numbers.at(2, 2) != 42) return 1;
  const std::size_t directory = numbers.at(4, 4);
  const std::size_t entries = numbers.at(directory, 2);
  for (std::size_t k = 0; k < entries; ++k) {
    const std::size_t entry = directory + 2 + k * entry_bytes;
    if (numbers.at(entry, 2) != orientation_tag || numbers.at(entry + 2, 2) != short_type) continue;
    const auto value = static_cast<int>(numbers.at(entry + 8, 2));
    return value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

void check_picture_size(const std::string& name, std::int64_t height, std::int64_t width,
                        std::int64_t max_pixels) {
  expect(height <= max_picture_side && width <= max_picture_side && height * width <= max_pixels,
         "picture: {}: {} x {} pixels are above the limits: sides of {}, {} pixels in all", name,
         height, width, max_picture_side, max_pixels);
}

Picture decode_picture(std::span<const std::uint8_t> file, const std::string& name,
                       std::int64_t max_pixels) {
  if (is_png(file)) return decode_png(file, name, max_pixels);
  expect(is_jpeg(file), "picture: {}: neither a PNG nor a JPEG file{}", name, looks_like(file));
  return decode_jpeg(file, name, max_pixels);
}

}  // namespace sotto
