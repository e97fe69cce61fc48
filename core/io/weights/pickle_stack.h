// The stack and the memo of a pickle that is being read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "core/io/weights/pickle.h"

namespace sotto::weights {

// Throws std::invalid_argument, beginning with the context, for a stack that ends too early, and
// for more values than a file of weights needs.
class PickleStack {
 public:
  explicit PickleStack(const FileContext& context) : context_(context) {}

  void push(Pickled value);
  Pickled* top() const;
  Pickled* take();
  std::vector<Pickled*> take_last(std::size_t count);
  // The values above the last mark, which goes, too.
  std::vector<Pickled*> take_marked();
  void duplicate();
  void recall(std::uint32_t number);  // pushes a value of the memo
  void keep(std::uint32_t number);    // puts the top into the memo
  void keep_next() { keep(static_cast<std::uint32_t>(memo_.size())); }
  // All values that were pushed.
  std::deque<Pickled> release() { return std::move(values_); }

 private:
  const FileContext& context_;
  std::deque<Pickled> values_;
  std::size_t items_ = 0;  // of all lists and dictionaries as they were pushed
  std::vector<Pickled*> stack_;
  std::unordered_map<std::uint32_t, Pickled*> memo_;
};

}  // namespace sotto::weights
