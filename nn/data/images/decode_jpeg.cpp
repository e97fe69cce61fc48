#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>
// jerror.h needs jpeglib.h.
#include <jerror.h>

#include "nn/data/expect.h"
#include "nn/data/images/picture.h"

namespace sotto {

namespace {

constexpr int exif_marker = JPEG_APP0 + 1;
constexpr unsigned max_marker_bytes = 0xffff;
// Between the data of a scan and the next marker some cameras leave bytes; more of them are a sign
// of data that were damaged, and decoded to the end too early.
constexpr int max_bytes_behind_scan = 256;
constexpr std::array<std::uint8_t, 6> exif_signature{'E', 'x', 'i', 'f', 0, 0};

// libjpeg reports an error by a call that must not return: a jump, which runs no destructors.
// Between guarded() and the jump there are C functions and plain data alone.
class JpegReader {
 public:
  JpegReader(std::span<const std::uint8_t> file, const std::string& name) : name_(name) {
    jpeg_.err = jpeg_std_error(&errors_);
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    progress_.progress_monitor = on_progress;
    jpeg_.client_data = this;
    guarded([&] {
      jpeg_create_decompress(&jpeg_);
      jpeg_.progress = &progress_;
      jpeg_mem_src(&jpeg_, file.data(), file.size());
      jpeg_save_markers(&jpeg_, exif_marker, max_marker_bytes);
    });
  }
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  void read_header() {
    guarded([&] { jpeg_read_header(&jpeg_, TRUE); });
    const int components = jpeg_.num_components;
    expect(components == 1 || components == 3 || components == 4,
           "jpeg: {}: {} channels; expected 1, 3 or 4: grey, colours or CMYK", name_, components);
    jpeg_.out_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  }

  std::int64_t height() const { return jpeg_.image_height; }
  std::int64_t width() const { return jpeg_.image_width; }
  std::int64_t channels() const { return jpeg_.num_components == 1 ? 1 : 3; }

  std::vector<std::uint8_t> read_pixels() {
    const auto row_bytes = static_cast<std::size_t>(width() * channels());
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height()) * row_bytes);
    const bool inks = jpeg_.num_components == 4;
    std::vector<std::uint8_t> row_of_inks(inks ? static_cast<std::size_t>(4 * width()) : 0);
    guarded([&] {
      jpeg_start_decompress(&jpeg_);
      while (jpeg_.output_scanline < jpeg_.output_height) {
        JSAMPROW row = pixels.data() + jpeg_.output_scanline * row_bytes;
        JSAMPROW into = inks ? row_of_inks.data() : row;
        jpeg_read_scanlines(&jpeg_, &into, 1);
        if (inks) to_colours(row_of_inks, row);
      }
      jpeg_finish_decompress(&jpeg_);
    });
    return pixels;
  }

  int orientation() const {
    for (auto* marker = jpeg_.marker_list; marker != nullptr; marker = marker->next) {
      const std::span<const std::uint8_t> data(marker->data, marker->data_length);
      if (data.size() >= exif_signature.size() &&
          std::equal(exif_signature.begin(), exif_signature.end(), data.begin())) {
        return exif_orientation(data.subspan(exif_signature.size()));
      }
    }
    return 1;
  }

 private:
  template <class F>
  void guarded(const F& f) {
    if (setjmp(jump_) != 0) {
      throw SystemFailure(fmt::format("jpeg: {}: {}", name_, message_.data()));
    }
    f();
  }

  static JpegReader& of(j_common_ptr jpeg) { return *static_cast<JpegReader*>(jpeg->client_data); }

  [[noreturn]] static void on_error(j_common_ptr jpeg) {
    JpegReader& reader = of(jpeg);
    reader.errors_.format_message(jpeg, reader.message_.data());
    std::longjmp(reader.jump_, 1);
  }

  // Converts c m y k of each pixel to red, green and blue: the light that ink and black leave. With
  // Adobe's marker, 255 means no ink (its programs write the inverse), else full ink.
  void to_colours(std::span<const std::uint8_t> inks, std::uint8_t* colours) const {
    constexpr int most = 255;
    const int flip = jpeg_.saw_Adobe_marker ? 0 : most;
    for (std::size_t k = 0; k < inks.size(); ++k) {
      const std::size_t black = k / 4 * 4 + 3;
      if (k == black) continue;
      const int product = (inks[k] ^ flip) * (inks[black] ^ flip);
      *colours++ = static_cast<std::uint8_t>((product + most / 2) / most);
    }
  }

  // Levels below 0 are warnings, after which libjpeg goes on. Those of damage are errors: that the
  // file ends early, that data have no meaning, or that their place is lost.
  static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0 && !of(jpeg).is_whole()) on_error(jpeg);
  }

  // Whether every pixel is as it was written, whatever the warning: an unknown version of JFIF or
  // code of Adobe's, parameters of a scan that a sequential file does not use, and bytes between
  // segments, but for those before a restart marker, which is amidst the pixels' data.
  bool is_whole() const {
    switch (errors_.msg_code) {
      case JWRN_JFIF_MAJOR:
      case JWRN_ADOBE_XFORM:
      case JWRN_NOT_SEQUENTIAL: return true;
      case JWRN_EXTRANEOUS_DATA: {
        const int bytes = errors_.msg_parm.i[0], marker = errors_.msg_parm.i[1];
        const bool restart = marker >= JPEG_RST0 && marker <= JPEG_RST0 + 7;
        return jpeg_.input_scan_number == 0 || (!restart && bytes <= max_bytes_behind_scan);
      }
      default: return false;
    }
  }

  // A small file can ask for thousands of passes over a large picture.
  static void on_progress(j_common_ptr jpeg) {
    JpegReader& reader = of(jpeg);
    if (reader.jpeg_.input_scan_number <= max_jpeg_scans) return;
    std::snprintf(reader.message_.data(), reader.message_.size(), "more than %d scans",
                  max_jpeg_scans);
    std::longjmp(reader.jump_, 1);
  }

  const std::string& name_;
  std::jmp_buf jump_{};
  std::array<char, JMSG_LENGTH_MAX> message_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct jpeg_{};
};

}  // namespace

bool is_jpeg(std::span<const std::uint8_t> file) {
  return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff;
}

Picture decode_jpeg(std::span<const std::uint8_t> file, const std::string& name,
                    std::int64_t max_pixels) {
  JpegReader reader(file, name);
  reader.read_header();
  check_picture_size(name, reader.height(), reader.width(), max_pixels);
  Picture picture{reader.height(), reader.width(), reader.channels(), reader.orientation()};
  picture.pixels = reader.read_pixels();
  return picture;
}

}  // namespace sotto
