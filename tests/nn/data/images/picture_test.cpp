// File tags: [sanitized]
#include "nn/data/images/picture.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

#include "core/error.h"
#include "core/random/philox.h"
#include "nn/data/images/encode_png.h"
#include "nn/data/images/resize.h"
#include "tests/support/picture_files.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr std::int64_t plenty = 1 << 20;

Picture decode(const std::string& file, std::int64_t max_pixels = plenty) {
  return decode_picture({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}, "test",
                        max_pixels);
}

// Smooth, so that JPEG keeps it.
Bytes smooth(int height, int width, int channels) {
  Bytes y;
  for (int i = 0; i < height; ++i) {
    for (int j = 0; j < width; ++j) {
      for (int c = 0; c < channels; ++c) {
        y.push_back(static_cast<std::uint8_t>(60 + 4 * i + 3 * j + (c == 1 ? 40 : 0)));
      }
    }
  }
  return y;
}

std::vector<float> fitted(const Picture& picture, std::int64_t c, std::int64_t h, std::int64_t w) {
  std::vector<float> y(static_cast<std::size_t>(c * h * w));
  fit_picture(picture, c, h, w, y.data());
  for (float& value : y) value *= 255;
  return y;
}

void check_close(const std::vector<float>& got, const std::vector<float>& expected, double margin) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    CHECK(static_cast<double>(got[k]) == Approx(static_cast<double>(expected[k])).margin(margin));
  }
}

}  // namespace

TEST_CASE("grey and coloured PNG files give their bytes") {
  for (const bool interlaced : {false, true}) {
    const PngFile grey{.height = 5, .width = 7, .bytes = smooth(5, 7, 1), .interlaced = interlaced};
    const Picture decoded = decode(grey.encoded());
    CHECK(decoded.height == 5);
    CHECK(decoded.width == 7);
    CHECK(decoded.channels == 1);
    CHECK(decoded.orientation == 1);
    CHECK(decoded.pixels == grey.bytes);
    const PngFile colour{.height = 5,
                         .width = 7,
                         .color_type = PNG_COLOR_TYPE_RGB,
                         .bytes = smooth(5, 7, 3),
                         .interlaced = interlaced};
    CHECK(decode(colour.encoded()).channels == 3);
    CHECK(decode(colour.encoded()).pixels == colour.bytes);
  }
}

TEST_CASE("palettes, few bits and 16 bits become bytes") {
  const PngFile palette{.height = 1,
                        .width = 4,
                        .color_type = PNG_COLOR_TYPE_PALETTE,
                        .bits = 2,
                        .bytes = {0b00011011},
                        .palette = {{1, 2, 3}, {40, 50, 60}, {255, 0, 9}, {8, 8, 8}}};
  CHECK(decode(palette.encoded()).pixels == Bytes{1, 2, 3, 40, 50, 60, 255, 0, 9, 8, 8, 8});
  const PngFile bits{.height = 2, .width = 3, .bits = 1, .bytes = {0b01000000, 0b10100000}};
  CHECK(decode(bits.encoded()).pixels == Bytes{0, 255, 0, 255, 0, 255});
  const PngFile wide{.height = 1, .width = 3, .bits = 16, .bytes = {0, 0, 0x80, 0x80, 0xff, 0xff}};
  CHECK(decode(wide.encoded()).pixels == Bytes{0, 128, 255});
}

TEST_CASE("a picture that is written as PNG is read back to 8 bits") {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{3, 5, 7}, Shape{1, 40, 3}, Shape{3, 70, 90}}) {
    Tensor x = Tensor::empty(shape);
    for (std::int64_t k = 0; k < x.numel(); ++k)
      x.data<float>()[k] = 1.2F * uniform_float({8, 1}, static_cast<std::uint64_t>(k)) - 0.1F;
    const Picture read = decode(encode_png(x));
    CHECK(read.channels == shape[0]);
    CHECK(read.height == shape[1]);
    REQUIRE(read.width == shape[2]);
    for (std::int64_t c = 0; c < shape[0]; ++c) {
      for (std::int64_t at = 0; at < shape[1] * shape[2]; ++at) {
        const float value = std::clamp(x.data<float>()[c * shape[1] * shape[2] + at], 0.0F, 1.0F);
        const auto byte = read.pixels[static_cast<std::size_t>(at * shape[0] + c)];
        REQUIRE(byte == std::lround(255 * value));
      }
    }
  }
  for (const Shape& wrong : {Shape{2, 4, 4}, Shape{4, 4}, Shape{1, 0, 4}})
    CHECK(throws([&] { encode_png(Tensor::empty(wrong)); }, "encode_png: a picture is to be"));
  CHECK_THROWS_AS(encode_png(Tensor::empty({1, 2, 2}, Dtype::f64)), std::invalid_argument);
}

TEST_CASE("transparent pixels are blended with white") {
  const PngFile rgba{.height = 1,
                     .width = 3,
                     .color_type = PNG_COLOR_TYPE_RGBA,
                     .bytes = {10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 255, 51}};
  CHECK(decode(rgba.encoded()).channels == 3);
  CHECK(decode(rgba.encoded()).pixels == Bytes{10, 20, 30, 255, 255, 255, 204, 224, 255});
  const PngFile grey{
      .height = 1, .width = 2, .color_type = PNG_COLOR_TYPE_GRAY_ALPHA, .bytes = {0, 51, 7, 255}};
  CHECK(decode(grey.encoded()).channels == 1);
  CHECK(decode(grey.encoded()).pixels == Bytes{204, 7});
  const PngFile palette{.height = 1,
                        .width = 2,
                        .color_type = PNG_COLOR_TYPE_PALETTE,
                        .bytes = {0, 1},
                        .palette = {{9, 9, 9}, {0, 0, 0}},
                        .transparency = {255, 51}};
  CHECK(decode(palette.encoded()).pixels == Bytes{9, 9, 9, 204, 204, 204});
}

TEST_CASE("JPEG files, baseline and progressive, give nearly what was written") {
  for (const bool progressive : {false, true}) {
    for (const int channels : {1, 3}) {
      const Bytes pixels = smooth(17, 25, channels);
      const Picture decoded =
          decode(jpeg_file(17, 25, channels, pixels, 0, {.progressive = progressive}));
      CHECK(decoded.height == 17);
      CHECK(decoded.width == 25);
      REQUIRE(decoded.pixels.size() == pixels.size());
      int worst = 0;
      for (std::size_t k = 0; k < pixels.size(); ++k) {
        worst = std::max(worst, std::abs(decoded.pixels[k] - pixels[k]));
      }
      CHECK(worst <= 4);
    }
  }
}

TEST_CASE("a picture is turned as its orientation says") {
  const std::vector<float> upright{10, 20, 30, 40, 50, 60};
  const std::vector<Bytes> stored{{10, 20, 30, 40, 50, 60}, {30, 20, 10, 60, 50, 40},
                                  {60, 50, 40, 30, 20, 10}, {40, 50, 60, 10, 20, 30},
                                  {10, 40, 20, 50, 30, 60}, {30, 60, 20, 50, 10, 40},
                                  {60, 30, 50, 20, 40, 10}, {40, 10, 50, 20, 60, 30}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    INFO("orientation " << orientation);
    const bool turned = orientation >= 5;
    const PngFile file{.height = turned ? 3 : 2,
                       .width = turned ? 2 : 3,
                       .bytes = stored[static_cast<std::size_t>(orientation - 1)],
                       .orientation = orientation};
    check_close(fitted(decode(file.encoded()), 1, 2, 3), upright, 1e-3);
  }
  CHECK(decode(jpeg_file(8, 8, 3, smooth(8, 8, 3), 6)).orientation == 6);
}

TEST_CASE("EXIF data that cannot be read say nothing") {
  const auto orientation = [](const std::string& exif) {
    return exif_orientation({reinterpret_cast<const std::uint8_t*>(exif.data()), exif.size()});
  };
  CHECK(orientation(exif_data(8)) == 8);
  CHECK(orientation(exif_data(3, true)) == 3);
  for (std::size_t kept = 0; kept < 20; ++kept)
    CHECK(orientation(exif_data(8).substr(0, kept)) == 1);
  CHECK(orientation(exif_data(9)) == 1);
  CHECK(orientation(exif_data(0)) == 1);
  std::string far = exif_data(8);
  far[7] = '\x7f';
  CHECK(orientation(far) == 1);
}

// The figures are those of Pillow's Image.resize(BILINEAR) on 32-bit floats.
TEST_CASE("pictures grow by interpolation and shrink by averages of areas") {
  check_close(fitted({1, 4, 1, 1, {0, 100, 40, 80}}, 1, 1, 4), {0, 100, 40, 80}, 1e-3);
  check_close(fitted({2, 2, 1, 1, {0, 100, 0, 100}}, 1, 4, 4),
              {0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100, 0, 25, 75, 100}, 1e-3);
  // Each of two halves of four pixels: weights 3, 3, 1 of 7, for the edge cuts the triangle.
  const Bytes row{0, 70, 140, 210};
  Bytes square;
  for (int k = 0; k < 4; ++k) square.insert(square.end(), row.begin(), row.end());
  check_close(fitted({4, 4, 1, 1, square}, 1, 2, 2), {50, 160, 50, 160}, 1e-3);
}

TEST_CASE("what is beyond the proportions is cut at both sides") {
  check_close(fitted({2, 6, 1, 1, {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}}, 1, 2, 2),
              {3, 4, 13, 14}, 1e-3);
  check_close(fitted({4, 1, 1, 1, {1, 2, 3, 4}}, 1, 2, 1), {2, 3}, 1e-3);
}

TEST_CASE("colours become grey by their brightness, and grey all three colours") {
  const Picture colour{1, 1, 3, 1, {100, 200, 50}};
  check_close(fitted(colour, 3, 1, 1), {100, 200, 50}, 1e-3);
  check_close(fitted(colour, 1, 1, 1), {0.299f * 100 + 0.587f * 200 + 0.114f * 50}, 1e-3);
  check_close(fitted({1, 1, 1, 1, {77}}, 3, 1, 1), {77, 77, 77}, 1e-3);
}

TEST_CASE("a picture that ends early is refused wherever it ends") {
  const PngFile png{.height = 9, .width = 9, .bytes = smooth(9, 9, 1), .orientation = 3};
  for (const std::string& file : {png.encoded(), jpeg_file(9, 9, 3, smooth(9, 9, 3)),
                                  jpeg_file(9, 9, 3, smooth(9, 9, 3), 2, {.progressive = true})}) {
    for (std::size_t kept = 0; kept < file.size(); ++kept) {
      INFO(kept << " of " << file.size());
      CHECK_THROWS_AS(decode(file.substr(0, kept)), SystemFailure);
    }
  }
}

namespace {

// The files without damage that libjpeg warns of, by what is odd about each.
std::vector<std::pair<std::string, std::string>> odd_jpeg_files(const std::string& sound) {
  const auto changed = [&](std::size_t at, const std::string& bytes) {
    std::string y = sound;
    return y.replace(at, bytes.size(), bytes);
  };
  const auto with = [&](std::size_t at, const std::string& bytes) {
    std::string y = sound;
    return y.insert(at, bytes);
  };
  const std::size_t version = sound.find("JFIF") + 5, sos = sound.find("\xff\xda"),
                    tables = sound.find("\xff\xdb"), end = sound.size() - 2;
  // The parameters are the last three bytes of the scan's header.
  const std::size_t parameters =
      sos + 2 + static_cast<std::size_t>(static_cast<std::uint8_t>(sound[sos + 3])) - 3;
  using namespace std::string_literals;
  return {{"version 0.00", changed(version, "\0\0"s)},
          {"version 3.7", changed(version, "\3\7")},
          {"parameters of a scan: 0 0 0", changed(parameters, "\0\0\0"s)},
          {"parameters of a scan: 0 63 16", changed(parameters, "\0\x3f\x10"s)},
          {"bytes between segments", with(tables, std::string(3000, '\x11'))},
          {"fill bytes", with(tables, "\xff\xff\xff")},
          {"zeros behind the scan", with(end, std::string(100, '\0'))},
          {"bytes behind the scan", with(end, "camera")},
          {"bytes behind the end", sound + std::string(5000, '\x42')},
          {"another picture behind the end", sound + sound},
          {"an unknown code of Adobe's", with(2,
                                              "\xff\xee\0\x0e"s
                                              "Adobe\0\x64\0\0\0\0\x07"s)}};
}

}  // namespace

TEST_CASE("JPEG files that are odd but whole give the pixels of those that are not") {
  const std::string sound = jpeg_file(17, 25, 3, smooth(17, 25, 3));
  const Bytes pixels = decode(sound).pixels;
  for (const auto& [what, file] : odd_jpeg_files(sound)) {
    INFO(what);
    CHECK(decode(file).pixels == pixels);
    for (const std::size_t cut : {file.size() / 2, file.size() - 1}) {
      const bool odd_behind_end = file.starts_with(sound);
      if (!odd_behind_end) CHECK_THROWS_AS(decode(file.substr(0, cut)), SystemFailure);
    }
  }
}

TEST_CASE("damaged data of a JPEG file are refused, though libjpeg would go on") {
  PublicRandom random(5);
  Bytes noise(64 * 64 * 3);
  for (std::uint8_t& value : noise) value = static_cast<std::uint8_t>(random.below(256));
  for (const int restart : {0, 4}) {
    const std::string sound = jpeg_file(64, 64, 3, noise, 0, {.restart_interval = restart});
    const std::size_t begin = sound.find("\xff\xda") + 14, middle = (begin + sound.size()) / 2;
    std::string hole = sound, bytes = sound, lost = sound;
    hole.replace(middle - 1000, 2000, std::string(2000, '\0'));
    bytes.insert(middle, "\xff\xd9");
    lost.erase(middle, 700);
    for (const std::string& file : {hole, bytes, lost, sound.substr(0, middle) + "\xff\xd9"})
      CHECK_THROWS_AS(decode(file), SystemFailure);
  }
  std::string out_of_step = jpeg_file(64, 64, 3, noise, 0, {.restart_interval = 4});
  const std::size_t marker = out_of_step.find("\xff\xd0");
  CHECK(throws<SystemFailure>([&] { decode(out_of_step.insert(marker, "extra")); },
                              "jpeg: test: Corrupt JPEG data: "));
}

TEST_CASE("CMYK and YCCK become the colours that inks and black leave") {
  constexpr int side = 16;
  for (const bool ycck : {false, true}) {
    // Adobe's programs store the inverse of the inks: 255 is none.
    for (const bool adobe : {true, false}) {
      if (ycck && !adobe) continue;  // which it is, Adobe's marker alone says
      Bytes inks;
      for (int k = 0; k < side * side; ++k) {
        for (const int ink : {200, 40, 100, 30})
          inks.push_back(static_cast<std::uint8_t>(adobe ? 255 - ink : ink));
      }
      std::string file = jpeg_file(side, side, 4, inks, 0, {.ycck = ycck});
      const std::size_t marker = file.find("\xff\xee");
      REQUIRE(marker != file.npos);
      if (!adobe) file.erase(marker, 16);
      const Picture picture = decode(file);
      CHECK(picture.channels == 3);
      REQUIRE(picture.pixels.size() == side * side * 3);
      const Bytes expected{(255 - 200) * 225 / 255, (255 - 40) * 225 / 255,
                           (255 - 100) * 225 / 255};
      for (std::size_t k = 0; k < picture.pixels.size(); ++k)
        REQUIRE(std::abs(picture.pixels[k] - expected[k % 3]) <= 4);
    }
  }
}

TEST_CASE("a picture that cannot be decoded is refused by its name") {
  const auto refused = [](const std::string& file, const std::string& why) {
    return throws<SystemFailure>([&] { decode(file); }, why);
  };
  CHECK(refused("GIF89a", "picture: test: neither a PNG nor a JPEG file"));
  CHECK(refused("", "neither"));
  CHECK(refused("GIF89a....", "neither a PNG nor a JPEG file (it looks like a GIF picture)"));
  std::string damaged = PngFile{.height = 9, .width = 9, .bytes = smooth(9, 9, 1)}.encoded();
  damaged[damaged.size() / 2] ^= 1;
  CHECK(refused(damaged, "png: test: "));
}

TEST_CASE("a picture above the limits is refused before its pixels are read") {
  const std::string png = PngFile{.height = 20, .width = 30, .bytes = smooth(20, 30, 1)}.encoded();
  const std::string jpeg = jpeg_file(20, 30, 3, smooth(20, 30, 3));
  for (const std::string& file : {png, jpeg}) {
    CHECK(decode(file, 600).pixels.size() >= 600);
    CHECK(throws<SystemFailure>([&] { decode(file, 599); },
                                "test: 20 x 30 pixels are above the limits"));
    CHECK(throws<SystemFailure>([&] { decode(file.substr(0, file.size() - 30), 599); },
                                "599 pixels in all"));
  }
}

TEST_CASE("mutated pictures are decoded or refused, never worse") {
  const std::vector<std::string> sound{
      PngFile{.height = 9, .width = 9, .bytes = smooth(9, 9, 1), .orientation = 3}.encoded(),
      jpeg_file(9, 9, 3, smooth(9, 9, 3), 2),
      jpeg_file(9, 9, 3, smooth(9, 9, 3), 2, {.progressive = true})};
  PublicRandom random(12);
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string file = sound[static_cast<std::size_t>(round) % sound.size()];
    for (std::int64_t k = random.below(3); k >= 0; --k) {
      file[static_cast<std::size_t>(random.below(std::ssize(file)))] =
          static_cast<char>(random.below(256));
    }
    try {
      const Picture picture = decode(file, 1 << 16);
      REQUIRE(std::ssize(picture.pixels) == picture.height * picture.width * picture.channels);
    } catch (const SystemFailure&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}
