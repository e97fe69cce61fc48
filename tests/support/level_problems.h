// Levels of a few numbers in f64, with matrices for their closed forms.
#pragma once

#include <Eigen/Dense>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/levels.h"
#include "tests/support/catch.h"

namespace sotto::multilevel {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

inline constexpr double relative = 1e-9;

inline Matrix random_matrix(std::uint64_t key, int rows, int columns) {
  Matrix m(rows, columns);
  for (int i = 0; i < rows * columns; ++i)
    m.data()[i] = normal(PhiloxKey{key, 7}, static_cast<std::uint64_t>(i));
  return m;
}

inline Tensor tensor(const Matrix& m) {
  const Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> rows = m;
  const std::vector<double> values(rows.data(), rows.data() + rows.size());
  const Tensor y = Tensor::from(values, {m.rows(), m.cols()});
  return m.cols() == 1 ? y.squeeze(1) : y;
}

inline Vector vector(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  return Eigen::Map<const Vector>(values.data(), std::ssize(values));
}

// |P w - y|^2 / 2 + |u|^2 / 2
struct Target {
  Matrix p;
  Vector y;
  Target(std::uint64_t key, int size)
      : p(random_matrix(key, 4, size)), y(random_matrix(key + 1, 4, 1)) {}

  Loss loss(Parameter& w, Parameter& u) const {
    return [this, &w, &u](Pass& pass) {
      const Var off =
          matmul(pass.tape.constant(tensor(p)), pass.tape.use(w)) - pass.tape.constant(tensor(y));
      const Var all = sum(square(off)) + sum(square(pass.tape.use(u)));
      return reshape(affine(all, 0.5, 0), {1});
    };
  }
  Vector v(const Parameter& w) const { return p.transpose() * (p * vector(w.value) - y); }
};

inline std::vector<std::int64_t> one_row(std::int64_t) { return {0}; }

inline std::vector<nn::Sgd::Group> sgd_group(Parameter& parameter, double rate) {
  return {{{&parameter}, {.learning_rate = rate}}};
}
inline nn::Sgd sgd(Parameter& parameter, double rate) {
  return nn::Sgd(sgd_group(parameter, rate));
}

inline void check_close(const Vector& got, const Vector& expected) {
  INFO("got " << got.transpose() << "\nexpected " << expected.transpose());
  REQUIRE(got.size() == expected.size());
  CHECK((got - expected).norm() <= relative * expected.norm());
}

}  // namespace sotto::multilevel
