// Opens files with descriptors from 3 on, so that none is standard input, output or error.
#pragma once

#include <string>
#include <utility>

namespace sotto {

// Owns an open file descriptor, or none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  // Leaves the other one without a file.
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  // The descriptor; -1: none.
  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  // Closes the file. Returns true, with errno unchanged, unless the system reports an error.
  bool close();

 private:
  int number_ = -1;
};

// open(2), closed on exec, with a number above standard error. If a program is started with a
// standard stream closed, open(2) alone could return that stream's number, and printed text would
// go into the file. Returns an empty Descriptor, with errno set, if the file cannot be opened.
Descriptor open_file(const std::string& path, int flags, unsigned permissions = 0);
// Duplicates a descriptor, with a number above standard error.
Descriptor same_file(int number);

}  // namespace sotto
