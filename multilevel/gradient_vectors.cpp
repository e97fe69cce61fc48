#include "multilevel/gradient_vectors.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::multilevel {

double inner_product(const Gradients& a, const Gradients& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor &x = a[i].second, &y = b[i].second;
    const Tensor product = Tensor::empty({1}, Dtype::f64, x.device());
    backend(x.device())
        .row_dot(reshape(contiguous(x), {1, x.numel()}).view(),
                 reshape(contiguous(y), {1, y.numel()}).view(), product.view());
    total += product.item();
  }
  return total;
}

double norm(const Gradients& a) { return std::sqrt(inner_product(a, a)); }

Gradients scaled(const Gradients& a, double factor) {
  Gradients y;
  for (const auto& [parameter, value] : a) y.emplace_back(parameter, scale(value, factor));
  return y;
}

void add_scaled(double factor, const Gradients& x, Gradients& y) {
  for (std::size_t i = 0; i < x.size(); ++i) axpby(factor, x[i].second, 1, y[i].second);
}

Gradients ordered(const Gradients& gradients, const std::vector<Parameter*>& parameters) {
  Gradients y;
  for (Parameter* parameter : parameters) {
    const auto found = std::find_if(gradients.begin(), gradients.end(),
                                    [&](const auto& entry) { return entry.first == parameter; });
    y.emplace_back(parameter,
                   found == gradients.end() ? zeros_like(parameter->value) : found->second);
  }
  return y;
}

Gradients in_f64(const Gradients& a) {
  Gradients y;
  for (const auto& [parameter, value] : a) y.emplace_back(parameter, to_dtype(value, Dtype::f64));
  return y;
}

Gradients moved(const Gradients& a, double factor) {
  Gradients y;
  for (const auto& [parameter, value] : a)
    y.emplace_back(parameter, add(parameter->value, scale(value, factor)));
  return y;
}

Replaced::Replaced(Gradients values) : other_(std::move(values)) { exchange(); }

Replaced::~Replaced() { exchange(); }

void Replaced::exchange() {
  for (auto& [parameter, value] : other_) std::swap(parameter->value, value);
}

OnlyTrainable::OnlyTrainable(const std::vector<Parameter*>& all,
                             const std::vector<Parameter*>& wanted) {
  before_.reserve(all.size());
  for (Parameter* parameter : all) {
    before_.emplace_back(parameter, parameter->trainable);
    parameter->trainable = std::find(wanted.begin(), wanted.end(), parameter) != wanted.end();
  }
}

OnlyTrainable::~OnlyTrainable() {
  for (const auto& [parameter, trainable] : before_) parameter->trainable = trainable;
}

}  // namespace sotto::multilevel
