// Modules of several inputs: a sequence and its lengths, a question and an answer.
#pragma once

#include <tuple>

#include "nn/module.h"

namespace sotto::nn {

// Base class of a module whose forward() takes a Var and more inputs: values on the tape (Var) or
// plain ones, such as a Tensor of lengths. The compiler checks the number and types of a call's
// inputs:
//
//   class Tagger final : public nn::ModuleOf<Tensor> {
//    public:
//     Var forward(const Var& words, const Tensor& lengths) override;
//     void visit(const nn::Visitor& visitor) override;
//   };
//   const Var y = tagger(tape.input(words), lengths);
//
// A call with one input, as a Sequential makes it, throws std::invalid_argument.
template <class... More>
class ModuleOf : public Module {
 public:
  // Computes the results. Call the module by operator() and not this.
  virtual Var forward(const Var& x, const More&... more) = 0;
  // Throws std::invalid_argument, as a module of several inputs has no such call.
  Var forward(const Var&) final { refuse_one_input(1 + sizeof...(More)); }

  // Calls forward() in the module's precision and reports the call to the ModuleHook.
  Var operator()(const Var& x, const More&... more) {
    static_assert(sizeof...(More) > 0, "a module of one input is a Module");
    std::vector<Var> inputs{x};
    (add(inputs, more), ...);
    return call(inputs, [this, more...](std::span<const Var> now) {
      std::size_t next = 1;
      // Braces guarantee evaluation from left to right.
      const std::tuple<More...> rest{current(now, next, more)...};
      return std::apply([&](const More&... m) { return forward(now[0], m...); }, rest);
    });
  }

 private:
  template <class T>
  static void add(std::vector<Var>& inputs, const T& input) {
    if constexpr (std::is_same_v<T, Var>) inputs.push_back(input);
  }
  template <class T>
  static T current(std::span<const Var> inputs, std::size_t& next, const T& input) {
    if constexpr (std::is_same_v<T, Var>)
      return inputs[next++];
    else
      return input;
  }
};

}  // namespace sotto::nn
