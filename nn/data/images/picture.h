// Decodes PNG and JPEG files that may be damaged or made to do harm.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sotto {

// A decoded picture, as it is stored: EXIF's orientation is not applied.
struct Picture {
  std::int64_t height = 0, width = 0;
  std::int64_t channels = 0;  // 1: grey, 3: red, green, blue
  int orientation = 1;        // EXIF's, 1 to 8: the corner of the scene that row 0, column 0 is at
  std::vector<std::uint8_t> pixels = {};  // [height, width, channels]
};

inline constexpr std::int64_t max_picture_side = 1 << 16;
// Passes over a progressive JPEG file; ordinary ones have about 10.
inline constexpr int max_jpeg_scans = 200;

// Decodes a whole file, recognized by its first bytes. Palettes and CMYK become colours, 16 bits
// become 8, and transparent pixels are blended with white. Throws SystemFailure, with the file's
// name, for one that is neither PNG nor JPEG, ends before its end marker, has data that cannot be
// decoded or that are out of step (a warning of the JPEG decoder), or has a side above
// max_picture_side, more than `max_pixels` pixels or more than max_jpeg_scans scans.
Picture decode_picture(std::span<const std::uint8_t> file, const std::string& name,
                       std::int64_t max_pixels);

// The parts of decode_picture for each format.
bool is_png(std::span<const std::uint8_t> file);
Picture decode_png(std::span<const std::uint8_t> file, const std::string& name,
                   std::int64_t max_pixels);
bool is_jpeg(std::span<const std::uint8_t> file);
Picture decode_jpeg(std::span<const std::uint8_t> file, const std::string& name,
                    std::int64_t max_pixels);
// Throws SystemFailure for a picture of this size beyond the limits.
void check_picture_size(const std::string& name, std::int64_t height, std::int64_t width,
                        std::int64_t max_pixels);
// The orientation in EXIF data (a TIFF header and its first directory), or 1 if there is none that
// can be read.
int exif_orientation(std::span<const std::uint8_t> exif);

}  // namespace sotto
