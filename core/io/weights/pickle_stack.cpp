#include "core/io/weights/pickle_stack.h"

#include <utility>

namespace sotto::weights {

namespace {

using Kind = Pickled::Kind;

constexpr std::size_t max_values = 2'000'000;  // 100 bytes each
constexpr std::size_t max_items = 20'000'000;  // 8 bytes each

}  // namespace

void PickleStack::push(Pickled value) {
  items_ += value.items.size();
  context_.check(values_.size() < max_values && items_ <= max_items,
                 "more than {} values, or {} items", max_values, max_items);
  values_.push_back(std::move(value));
  stack_.push_back(&values_.back());
}

Pickled* PickleStack::top() const {
  context_.check(!stack_.empty() && !stack_.back()->is(Kind::mark), "the stack ends too early");
  return stack_.back();
}

Pickled* PickleStack::take() {
  Pickled* const value = top();
  stack_.pop_back();
  return value;
}

std::vector<Pickled*> PickleStack::take_last(std::size_t count) {
  std::vector<Pickled*> values(count);
  for (std::size_t k = count; k > 0; --k) values[k - 1] = take();
  return values;
}

std::vector<Pickled*> PickleStack::take_marked() {
  std::size_t first = stack_.size();
  while (first > 0 && !stack_[first - 1]->is(Kind::mark)) --first;
  context_.check(first > 0, "the stack holds no mark");
  const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<Pickled*> values(begin, stack_.end());
  stack_.resize(first - 1);
  return values;
}

void PickleStack::duplicate() { stack_.push_back(top()); }

void PickleStack::recall(std::uint32_t number) {
  const auto found = memo_.find(number);
  context_.check(found != memo_.end(), "the memo has no value {}", number);
  stack_.push_back(found->second);
}

void PickleStack::keep(std::uint32_t number) {
  context_.check(memo_.size() < max_values, "the memo has more than {} values", max_values);
  memo_[number] = top();
}

}  // namespace sotto::weights
