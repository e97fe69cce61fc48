// Problems of one number each.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/levels.h"

namespace sotto::multilevel {

using Names = std::vector<std::string>;

// Makes problems of one number each, which note their updates.
class Toy {
 public:
  // The loss is (x - number of the batch - sum of the others)^2 / 2.
  Problem problem(const std::string& name) {
    Parameter& own = values_.emplace_back(zeros({1}, Dtype::f64));
    optimizers_.push_back(std::make_unique<nn::Sgd>(
        std::vector<nn::Sgd::Group>{{{&own}, {.learning_rate = 0.25, .momentum = 0.5}}}));
    const auto loss = [this, &own](Pass& pass) {
      Var off = pass.tape.use(own) -
                pass.tape.constant(full({1}, static_cast<double>(pass.rows[0]), Dtype::f64));
      for (Parameter& other : values_) {
        if (&other != &own) off = off - pass.tape.use(other);
      }
      return affine(square(off), 0.5, 0);
    };
    return {.name = name,
            .variables = nn::NamedParameters{{"x", &own}},
            .optimizer = *optimizers_.back(),
            .loss = loss,
            .batches = [](std::int64_t number) { return std::vector{number}; },
            .response = finite_differences(),
            .after_update = [this, name] { updates.push_back(name); }};
  }
  std::vector<double> values() {
    std::vector<double> all;
    for (const Parameter& value : values_) all.push_back(value.value.item());
    return all;
  }
  Parameter& operator[](std::size_t i) { return values_[i]; }

  Names updates;

 private:
  std::deque<Parameter> values_;
  std::vector<std::unique_ptr<nn::Optimizer>> optimizers_;
};

}  // namespace sotto::multilevel
