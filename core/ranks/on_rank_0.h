// Rank 0 decides for all: the result, or the error, of a function that it alone calls.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/ranks/ranks.h"

namespace sotto {

// Values one after the other, as bytes.
class PackedValues {
 public:
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void add(const T& value) { append(&value, sizeof value); }
  template <class T>
  void add_all(const T& values) {
    add(static_cast<std::uint64_t>(std::size(values)));
    append(std::data(values), std::size(values) * sizeof *std::data(values));
  }
  std::vector<std::byte> take() && { return std::move(bytes_); }

 private:
  void append(const void* from, std::size_t size) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), bytes, bytes + size);
  }
  std::vector<std::byte> bytes_;
};

// Takes the values out again, in the same order. Throws std::invalid_argument at the end.
class UnpackedValues {
 public:
  explicit UnpackedValues(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  template <class T>
  requires std::is_trivially_copyable_v<T> T take() {
    T value;
    copy(&value, sizeof value);
    return value;
  }
  // T: a vector or a string.
  template <class T>
  T take_all() {
    const auto count = static_cast<std::size_t>(take<std::uint64_t>());
    check(count <= (bytes_.size() - at_) / sizeof(typename T::value_type),
          "message between ranks: it ends early");
    T values(count, {});
    copy(values.data(), count * sizeof(typename T::value_type));
    return values;
  }

 private:
  void copy(void* to, std::size_t size) {
    check(size <= bytes_.size() - at_, "message between ranks: it ends early");
    if (size > 0) std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
  }
  std::vector<std::byte> bytes_;
  std::size_t at_ = 0;
};

// The ranks if there are several; null for one rank, and without ranks.
const Ranks* several(const Ranks* ranks);

// Errors that every rank throws at the same operation are of this type, too: the run goes on.
class OnEveryRank {
 public:
  virtual ~OnEveryRank() = default;

 protected:
  OnEveryRank() = default;
  OnEveryRank(const OnEveryRank&) = default;
};

// Calls `f` on rank 0 and returns its result on every rank. Collective. If `f` throws, every rank
// throws an OnEveryRank with its message: std::invalid_argument and SystemFailure as such, any
// other as std::runtime_error. The run goes on.
std::vector<std::byte> on_rank_0(Ranks& ranks, std::string_view place,
                                 const std::function<std::vector<std::byte>()>& f);

// The same of an `f` that returns the bytes for each rank, of which each gets its own.
std::vector<std::byte> dealt_by_rank_0(
    Ranks& ranks, std::string_view place,
    const std::function<std::vector<std::vector<std::byte>>()>& f);

// Calls `f` on rank 0, as above, or without ranks (null) here.
void by_rank_0(const std::shared_ptr<Ranks>& ranks, std::string_view place,
               const std::function<void()>& f);

// Calls `f`, which is local, on every rank. Collective. If it throws on some, every rank throws the
// error of the first of them, as above. The run goes on.
void on_each_rank(Ranks& ranks, std::string_view place, const std::function<void()>& f);

// Calls `f`. If it throws other errors than those of every rank, the run fails on every rank, with
// the message.
void fail_together(Ranks& ranks, const std::function<void()>& f);

}  // namespace sotto
