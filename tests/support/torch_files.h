// Files as PyTorch's torch.save writes them, made of what a test gives, right or wrong.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include "tests/support/weights_files.h"

// Parts of pickles of protocol 2. Each function gives the opcodes that leave one value.
namespace pickled {

using Parts = std::vector<std::string>;

inline std::string text(const std::string& value) {
  return "X" + bytes_of(static_cast<std::uint32_t>(value.size())) + value;
}
inline std::string number(std::int64_t value) { return "\x8a\x08" + bytes_of(value); }
inline std::string real(double value) {
  std::string digits = bytes_of(value);
  return "G" + std::string(digits.rbegin(), digits.rend());
}
inline std::string none() { return "N"; }
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string joined(const Parts& parts) {
  std::string y;
  for (const std::string& part : parts) y += part;
  return y;
}
inline std::string tuple(const Parts& items) { return "(" + joined(items) + "t"; }
inline std::string list(const Parts& items) { return "](" + joined(items) + "e"; }
inline std::string numbers(const std::vector<std::int64_t>& values) {
  Parts items;
  for (const std::int64_t value : values) items.push_back(number(value));
  return tuple(items);
}
inline std::string call(const std::string& callee, const Parts& arguments) {
  return callee + tuple(arguments) + "R";
}
inline std::string dictionary(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string y = "}(";
  for (const auto& [key, value] : items) y += text(key) + value;
  return y + "u";
}
inline std::string ordered(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string y = call(global("collections", "OrderedDict"), {}) + "(";
  for (const auto& [key, value] : items) y += text(key) + value;
  return y + "u";
}
// A pickle whose value is that of the part.
inline std::string whole(const std::string& part) { return "\x80\x02" + part + "."; }

// A storage, as the class of PyTorch says, of a key.
struct SavedStorage {
  std::string key = "0";
  std::string type = "FloatStorage";
  std::int64_t count = 0;
};
inline std::string storage(const SavedStorage& x, const Parts& more = {}) {
  return tuple({text("storage"), global("torch", x.type), text(x.key), text("cpu"), number(x.count),
                joined(more)}) +
         "Q";
}
inline std::string tensor(const SavedStorage& x, std::int64_t offset,
                          const std::vector<std::int64_t>& sizes,
                          const std::vector<std::int64_t>& strides, const Parts& more = {}) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage(x, more), number(offset), numbers(sizes), numbers(strides), "\x89",
               call(global("collections", "OrderedDict"), {})});
}

}  // namespace pickled

// The bytes of storages by their keys.
using StorageBytes = std::vector<std::pair<std::string, std::string>>;

// A zip archive of stored entries, or of deflated ones.
class ZipFile {
 public:
  void add(const std::string& name, const std::string& contents, bool deflated = false) {
    add_as(name, contents, contents.size(), deflated);
  }
  // An entry that says that it has `bytes`.
  void add_as(const std::string& name, const std::string& contents, std::size_t bytes,
              bool deflated) {
    const std::string packed = deflated ? compressed(contents) : contents;
    const auto sum = static_cast<std::uint32_t>(crc32(
        0, reinterpret_cast<const Bytef*>(contents.data()), static_cast<uInt>(contents.size())));
    const std::uint16_t method = deflated ? 8 : 0;
    const std::string facts =
        bytes_of(std::uint16_t{20}, std::uint16_t{0}, method, std::uint16_t{0}, std::uint16_t{0x21},
                 sum, static_cast<std::uint32_t>(packed.size()), static_cast<std::uint32_t>(bytes),
                 static_cast<std::uint16_t>(name.size()), std::uint16_t{0});
    list_ += "PK\1\2" + bytes_of(std::uint16_t{20}) + facts + std::string(10, '\0') +
             bytes_of(static_cast<std::uint32_t>(entries_.size())) + name;
    entries_ += "PK\3\4" + facts + name + packed;
    ++count_;
  }
  std::string bytes() const {
    return entries_ + list_ + "PK\5\6" + std::string(4, '\0') +
           bytes_of(count_, count_, static_cast<std::uint32_t>(list_.size()),
                    static_cast<std::uint32_t>(entries_.size()), std::uint16_t{0});
  }

 private:
  static std::string compressed(std::string plain) {
    z_stream z{};
    deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    std::string packed(deflateBound(&z, plain.size()), '\0');
    z.next_in = reinterpret_cast<Bytef*>(plain.data());
    z.avail_in = static_cast<uInt>(plain.size());
    z.next_out = reinterpret_cast<Bytef*>(packed.data());
    z.avail_out = static_cast<uInt>(packed.size());
    deflate(&z, Z_FINISH);
    packed.resize(z.total_out);
    deflateEnd(&z);
    return packed;
  }

  std::string entries_, list_;
  std::uint16_t count_ = 0;
};

inline std::string torch_zip(const std::string& value, const StorageBytes& storages,
                             bool deflated = false) {
  ZipFile zip;
  zip.add("archive/data.pkl", pickled::whole(value), deflated);
  zip.add("archive/byteorder", "little", deflated);
  for (const auto& [key, bytes] : storages) zip.add("archive/data/" + key, bytes, deflated);
  return zip.bytes();
}

// The form before version 1.6; `widths` are the bytes of an element.
inline std::string torch_stream(const std::string& value, const StorageBytes& storages,
                                std::int64_t width = 4, bool little_endian = true) {
  using namespace pickled;
  Parts keys;
  std::string data;
  for (const auto& [key, bytes] : storages) {
    keys.push_back(text(key));
    data += bytes_of(static_cast<std::int64_t>(bytes.size()) / width) + bytes;
  }
  const std::string magic("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 12);
  return whole(magic) + whole(number(1001)) +
         whole(dictionary({{"little_endian", little_endian ? "\x88" : "\x89"}})) + whole(value) +
         whole(list(keys)) + data;
}
