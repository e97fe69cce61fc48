// A visitor for std::visit, made from one lambda per alternative.
#pragma once

namespace sotto {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace sotto
