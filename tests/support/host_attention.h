// Attention as a device's library computes it, in plain loops: scores of one query at a time,
// weights and gradients rounded to the factors' type before they are multiplied, sums in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/half.h"
#include "kernels/cuda/cudnn/attention_problem.h"
#include "kernels/functors/scalar_math.h"

namespace sotto {

template <class T>
T& at(const View& x, std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) {
  return x.as<T>()[n * x.stride[0] + h * x.stride[1] + i * x.stride[2] + j * x.stride[3]];
}

// <row i of a, row j of b>
template <class T>
double rows_product(const View& a, const View& b, std::int64_t n, std::int64_t h, std::int64_t i,
                    std::int64_t j) {
  double sum = 0;
  for (std::int64_t c = 0; c < a.size[3]; ++c)
    sum += double(acc_t<T>(at<T>(a, n, h, i, c))) * double(acc_t<T>(at<T>(b, n, h, j, c)));
  return sum;
}

template <class T>
double rounded(double x) {
  return double(acc_t<T>(T(acc_t<T>(x))));
}

// Attention of one head of one sample.
template <class T>
class HostAttentionHead {
 public:
  HostAttentionHead(const AttentionProblem& p, std::int64_t n, std::int64_t h)
      : f_(p.forward), g_(p.grad), n_(n), h_(h) {}

  void forward() const {
    for (std::int64_t t = 0; t < f_.queries(); ++t) {
      std::vector<double> scores;
      for (std::int64_t s = 0; s < seen(t); ++s) scores.push_back(score(t, s));
      const double top = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (const double x : scores) sum += std::exp(x - top);
      stats(t) = static_cast<float>(top + std::log(sum));
      std::vector<double> y(static_cast<std::size_t>(f_.y.size[3]));
      for (std::int64_t s = 0; s < seen(t); ++s)
        add(y, std::exp(scores[static_cast<std::size_t>(s)] - top) / sum, f_.v, s);
      put(y, f_.y, t);
    }
  }

  void backward() const {
    std::vector<std::vector<double>> dk = rows_of(g_.dk), dv = rows_of(g_.dv);
    for (std::int64_t t = 0; t < f_.queries(); ++t) {
      const double projection = rows_product<T>(g_.dy, f_.y, n_, h_, t, t);
      std::vector<double> dq(static_cast<std::size_t>(g_.dq.size[3]));
      for (std::int64_t s = 0; s < seen(t); ++s) {
        const double w = std::exp(score(t, s) - double(stats(t)));
        const double of_weight = rows_product<T>(g_.dy, f_.v, n_, h_, t, s);
        const double slope = f_.scale * w * (of_weight - projection);
        add(dv[static_cast<std::size_t>(s)], w, g_.dy, t);
        add(dk[static_cast<std::size_t>(s)], slope, f_.q, t);
        add(dq, slope, f_.k, s);
      }
      put(dq, g_.dq, t);
    }
    for (std::int64_t s = 0; s < f_.keys(); ++s) {
      put(dk[static_cast<std::size_t>(s)], g_.dk, s);
      put(dv[static_cast<std::size_t>(s)], g_.dv, s);
    }
  }

 private:
  std::int64_t seen(std::int64_t t) const {
    return f_.causal ? std::min(t + 1, f_.keys()) : f_.keys();
  }
  double score(std::int64_t t, std::int64_t s) const {
    return f_.scale * rows_product<T>(f_.q, f_.k, n_, h_, t, s) + bias(t, s);
  }
  double bias(std::int64_t t, std::int64_t s) const {
    const View& b = f_.bias;
    const auto on = [&b](int axis, std::int64_t i) { return b.size[axis] == 1 ? 0 : i; };
    return b.data ? double(at<float>(b, on(0, n_), on(1, h_), on(2, t), s)) : 0;
  }
  float& stats(std::int64_t t) const {
    return f_.stats.as<float>()[n_ * f_.stats.stride[0] + h_ * f_.stats.stride[1] + t];
  }
  static std::vector<std::vector<double>> rows_of(const View& x) {
    return std::vector(static_cast<std::size_t>(x.size[2]),
                       std::vector<double>(static_cast<std::size_t>(x.size[3])));
  }
  // to += factor * row i of x.
  void add(std::vector<double>& to, double factor, const View& x, std::int64_t i) const {
    for (std::size_t c = 0; c < to.size(); ++c)
      to[c] +=
          rounded<T>(factor) * double(acc_t<T>(at<T>(x, n_, h_, i, static_cast<std::int64_t>(c))));
  }
  void put(const std::vector<double>& from, const View& x, std::int64_t i) const {
    for (std::size_t c = 0; c < from.size(); ++c)
      at<T>(x, n_, h_, i, static_cast<std::int64_t>(c)) = T(acc_t<T>(from[c]));
  }

  const FusedAttention& f_;
  const FusedAttentionGrad& g_;
  std::int64_t n_, h_;
};

class HostAttentionPlan final : public AttentionPlan {
 public:
  void run(const AttentionProblem& p) const override {
    p.forward.q.dtype == Dtype::f16 ? run_in<f16>(p) : run_in<bf16>(p);
  }

 private:
  template <class T>
  static void run_in(const AttentionProblem& p) {
    for (std::int64_t n = 0; n < p.forward.samples(); ++n) {
      for (std::int64_t h = 0; h < p.forward.heads(); ++h) {
        const HostAttentionHead<T> head(p, n, h);
        p.backward ? head.backward() : head.forward();
      }
    }
  }
};

}  // namespace sotto
