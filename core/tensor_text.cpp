#include "core/tensor_text.h"

#include <algorithm>

namespace sotto {

namespace {

constexpr std::int64_t max_elements = 100;

class Text {
 public:
  explicit Text(const Tensor& x) : abridged_(x.numel() > max_elements), rank_(x.rank()) {
    collect(x);
    for (const std::string& element : elements_) width_ = std::max(width_, element.size());
    write(x.shape(), 0);
  }
  const std::string& text() const { return text_; }

 private:
  // The numbers of elements shown at the start and at the end of an axis of a large tensor. They
  // give about thirty lines at most, whatever the rank.
  struct Ends {
    std::int64_t first, last;
  };
  Ends ends(int axis) const {
    if (axis < rank_ - 4) return {1, 0};
    if (axis < rank_ - 2) return {1, 1};
    return {3, 3};
  }

  // Calls f(i) for the elements of an axis that are shown, and gap() for those that are not.
  template <class F, class Gap>
  void walk(std::int64_t size, int axis, F&& f, Gap&& gap) const {
    const auto [first, last] = ends(axis);
    const bool all = !abridged_ || size <= first + last;
    for (std::int64_t i = 0; i < (all ? size : first); ++i) f(i);
    if (all) return;
    gap();
    for (std::int64_t i = size - last; i < size; ++i) f(i);
  }

  void collect(const Tensor& x) {
    if (x.rank() > 0) {
      walk(
          x.size(0), rank_ - x.rank(), [&](std::int64_t i) { collect(x[i]); }, [] {});
      return;
    }
    const Tensor element = x.to(cpu);
    elements_.push_back(dispatch(x.dtype(), [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_same_v<acc_t<T>, std::int64_t>)
        return fmt::format("{}", *element.data<T>());
      else
        return fmt::format("{:.4g}", static_cast<double>(acc_t<T>(*element.data<T>())));
    }));
  }

  void write(const Shape& shape, int axis) {
    if (axis == rank_) {
      text_ += fmt::format("{:>{}}", elements_[next_++], rank_ > 0 ? width_ : 0);
      return;
    }
    const bool innermost = axis == rank_ - 1;
    const std::string between = innermost ? ", " : ",\n" + std::string(axis + 1, ' ');
    text_ += '[';
    bool first = true;
    const auto separate = [&] {
      if (!first) text_ += between;
      first = false;
    };
    walk(
        shape[axis], axis,
        [&](std::int64_t) {
          separate();
          write(shape, axis + 1);
        },
        [&] {
          separate();
          text_ += "...";
        });
    text_ += ']';
  }

  bool abridged_;
  int rank_;
  std::size_t width_ = 0;
  std::vector<std::string> elements_;  // those shown, in row-major order
  std::size_t next_ = 0;
  std::string text_;
};

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "no tensor";
  return fmt::format("tensor {} {} on {}\n{}", x.shape(), name(x.dtype()), name(x.device()),
                     Text(x).text());
}

}  // namespace sotto

fmt::appender fmt::formatter<sotto::Tensor>::format(const sotto::Tensor& x,
                                                    fmt::format_context& context) const {
  const std::string text = sotto::to_string(x);
  return std::copy(text.begin(), text.end(), context.out());
}
