// Files that a program opened, none of which takes the place of standard input, output or error.
#pragma once

#include <string>
#include <utility>

namespace sotto {

// A file that is open as long as this object lives; or none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int number() const { return number_; }
  bool is_open() const { return number_ >= 0; }
  // Returns true, with errno as it was, unless the system reports an error.
  bool close();

 private:
  int number_ = -1;
};

// open(2), closed on exec. A program may be started with standard input, output or error closed;
// their numbers are free then, and what it prints would go into the file that gets one. So this
// file's number is above them. Holds nothing, and errno says why, when the file cannot be opened.
Descriptor open_file(const std::string& path, int flags, unsigned permissions = 0);
// Another number for an open file, above those of standard input, output and error, too.
Descriptor same_file(int number);

}  // namespace sotto
