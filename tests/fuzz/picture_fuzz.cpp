// Any bytes are a PNG or JPEG file, or are refused with SystemFailure; and a picture, brought to
// any small size, has values in [0, 1].
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "core/error.h"
#include "nn/data/images/picture.h"
#include "nn/data/images/resize.h"

namespace {

using namespace sotto;

constexpr std::int64_t max_pixels = 1 << 16;

void require(bool fact) {
  if (!fact) std::abort();
}

void require_fits(const Picture& picture, std::int64_t channels, std::int64_t h, std::int64_t w) {
  std::vector<float> y(static_cast<std::size_t>(channels * h * w), -1.0f);
  fit_picture(picture, channels, h, w, y.data());
  for (const float value : y) require(value >= 0 && value <= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const Picture picture = decode_picture({data, size}, "fuzz", max_pixels);
    require(picture.height * picture.width <= max_pixels);
    require(picture.channels == 1 || picture.channels == 3);
    require(std::ssize(picture.pixels) == picture.height * picture.width * picture.channels);
    require_fits(picture, 3, 5, 2);
    require_fits(picture, 1, 1, 40);
  } catch (const SystemFailure&) {
    return 0;  // the expected answer to most inputs
  }
  return 0;
}
