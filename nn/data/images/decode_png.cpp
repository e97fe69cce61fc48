#include <algorithm>
#include <array>
#include <cstring>

#include <png.h>

#include "nn/data/expect.h"
#include "nn/data/images/picture.h"

namespace sotto {

namespace {

constexpr png_alloc_size_t max_chunk_bytes = 1 << 24;  // of texts, profiles and the like

// libpng reports an error by a jump, which runs no destructors: between guarded() and the jump
// there are C functions and plain data alone.
class PngReader {
 public:
  PngReader(std::span<const std::uint8_t> file, const std::string& name)
      : left_(file), name_(name) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error,
                                  [](png_structp, png_const_charp) {});
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw SystemFailure("png: no memory to decode");
    }
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // Reads up to the pixels; they are to be of 8 bits, without palettes.
  void read_header() {
    guarded([&] {
      png_set_read_fn(png_, this, on_read);
      png_set_user_limits(png_, max_picture_side, max_picture_side);
      png_set_chunk_malloc_max(png_, max_chunk_bytes);
      png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
      png_read_info(png_, info_);
      png_set_expand(png_);
      png_set_scale_16(png_);
      png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
    });
  }

  std::int64_t height() const { return png_get_image_height(png_, info_); }
  std::int64_t width() const { return png_get_image_width(png_, info_); }
  std::int64_t channels() const { return png_get_channels(png_, info_); }

  // Reads the pixels and all that follows them.
  std::vector<std::uint8_t> read_pixels() {
    const std::size_t row_bytes = png_get_rowbytes(png_, info_);
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height()) * row_bytes);
    std::vector<png_bytep> rows;
    for (std::int64_t i = 0; i < height(); ++i)
      rows.push_back(pixels.data() + static_cast<std::size_t>(i) * row_bytes);
    guarded([&] {
      png_read_image(png_, rows.data());
      png_read_end(png_, info_);
    });
    return pixels;
  }

  int orientation() {
    png_uint_32 size = 0;
    png_bytep exif = nullptr;
    guarded([&] { png_get_eXIf_1(png_, info_, &size, &exif); });
    return exif == nullptr ? 1 : exif_orientation({exif, size});
  }

 private:
  template <class F>
  void guarded(const F& f) {
    if (setjmp(png_jmpbuf(png_)) != 0) {
      throw SystemFailure(fmt::format("png: {}: {}", name_, message_.data()));
    }
    f();
  }

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto& text = static_cast<PngReader*>(png_get_error_ptr(png))->message_;
    std::strncpy(text.data(), message, text.size() - 1);
    png_longjmp(png, 1);
  }

  static void on_read(png_structp png, png_bytep to, std::size_t count) {
    auto& left = static_cast<PngReader*>(png_get_io_ptr(png))->left_;
    if (count > left.size()) png_error(png, "the file ends early");
    std::memcpy(to, left.data(), count);
    left = left.subspan(count);
  }

  std::span<const std::uint8_t> left_;
  const std::string& name_;
  std::array<char, 128> message_{};
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

// Blends with white and drops the last channel, alpha.
std::vector<std::uint8_t> without_alpha(const std::vector<std::uint8_t>& pixels,
                                        std::size_t channels) {
  constexpr int white = 255;
  std::vector<std::uint8_t> y;
  y.reserve(pixels.size() / channels * (channels - 1));
  for (std::size_t pixel = 0; pixel < pixels.size(); pixel += channels) {
    const int alpha = pixels[pixel + channels - 1];
    for (std::size_t k = 0; k + 1 < channels; ++k) {
      const int sum = pixels[pixel + k] * alpha + white * (white - alpha);
      y.push_back(static_cast<std::uint8_t>((sum + white / 2) / white));
    }
  }
  return y;
}

}  // namespace

bool is_png(std::span<const std::uint8_t> file) {
  constexpr std::array<std::uint8_t, 8> signature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return file.size() >= signature.size() &&
         std::equal(signature.begin(), signature.end(), file.begin());
}

Picture decode_png(std::span<const std::uint8_t> file, const std::string& name,
                   std::int64_t max_pixels) {
  PngReader reader(file, name);
  reader.read_header();
  check_picture_size(name, reader.height(), reader.width(), max_pixels);
  Picture picture{reader.height(), reader.width(), reader.channels()};
  picture.pixels = reader.read_pixels();
  picture.orientation = reader.orientation();
  if (picture.channels % 2 == 0) {
    picture.pixels = without_alpha(picture.pixels, static_cast<std::size_t>(picture.channels));
    --picture.channels;
  }
  return picture;
}

}  // namespace sotto
