// PNG and JPEG files made of numbers, for tests of their readers.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <jpeglib.h>
#include <png.h>

// EXIF data that holds an orientation alone.
inline std::string exif_data(int orientation, bool big_endian = false) {
  std::string y = big_endian ? "MM" : "II";
  const auto put = [&](unsigned value, int bytes) {
    for (int k = 0; k < bytes; ++k) {
      y += static_cast<char>(value >> 8 * (big_endian ? bytes - 1 - k : k) & 0xff);
    }
  };
  put(42, 2);
  put(8, 4);       // the directory's offset
  put(1, 2);       // entries
  put(0x0112, 2);  // Orientation
  put(3, 2);       // SHORT
  put(1, 4);
  put(static_cast<unsigned>(orientation), 2);
  put(0, 2);
  put(0, 4);
  return y;
}

// A PNG file; rows are bytes as libpng packs them.
struct PngFile {
  int height, width;
  int color_type = PNG_COLOR_TYPE_GRAY;
  int bits = 8;
  std::vector<std::uint8_t> bytes = {};
  std::vector<png_color> palette = {};
  std::vector<std::uint8_t> transparency = {};  // alpha of the palette's colours
  int orientation = 0;                          // 0: no EXIF data
  bool interlaced = false;

  std::string encoded() const {
    std::string y;
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    if (setjmp(png_jmpbuf(png)) != 0) std::abort();
    png_set_write_fn(
        png, &y,
        [](png_structp of, png_bytep from, std::size_t count) {
          static_cast<std::string*>(png_get_io_ptr(of))
              ->append(reinterpret_cast<char*>(from), count);
        },
        nullptr);
    png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), bits,
                 color_type, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    if (!palette.empty()) png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
    if (!transparency.empty()) {
      png_set_tRNS(png, info, transparency.data(), static_cast<int>(transparency.size()), nullptr);
    }
    std::string exif = exif_data(orientation);
    if (orientation != 0) {
      png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()),
                     reinterpret_cast<png_bytep>(exif.data()));
    }
    png_write_info(png, info);
    const std::size_t row = png_get_rowbytes(png, info);
    std::vector<png_bytep> rows;
    for (int i = 0; i < height; ++i) {
      rows.push_back(const_cast<png_bytep>(bytes.data()) + static_cast<std::size_t>(i) * row);
    }
    png_write_image(png, rows.data());
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return y;
  }
};

// How a JPEG file is written.
struct JpegForm {
  bool progressive = false;
  int restart_interval = 0;  // in blocks; 0: no markers
  bool ycck = false;         // CMYK as YCCK
};

// A JPEG file of pixels [height, width, channels]: 1 grey, 3 colours, 4 CMYK.
inline std::string jpeg_file(int height, int width, int channels,
                             const std::vector<std::uint8_t>& pixels, int orientation = 0,
                             const JpegForm& form = {}) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.input_components = channels;
  jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  constexpr int quality = 95;
  jpeg_set_quality(&jpeg, quality, TRUE);
  if (form.ycck) jpeg_set_colorspace(&jpeg, JCS_YCCK);
  if (form.progressive) jpeg_simple_progression(&jpeg);
  jpeg.restart_interval = static_cast<unsigned>(form.restart_interval);
  jpeg_start_compress(&jpeg, TRUE);
  if (orientation != 0) {
    const std::string exif = std::string("Exif\0\0", 6) + exif_data(orientation, true);
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  }
  for (int i = 0; i < height; ++i) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels.data()) + i * width * channels;
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string y(reinterpret_cast<char*>(memory), size);
  jpeg_destroy_compress(&jpeg);
  std::free(memory);
  return y;
}
