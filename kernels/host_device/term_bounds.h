// Bounds on the rounding error of a sample's gradient, from the norms of its terms
// (docs/appendix/proofs-rounding.md), for all devices. Device code can include this header.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/view.h"
#include "kernels/host_device/gemm_blocking.h"

namespace sotto {

// The terms of one sample: products b[t] a[t] of its factors' rows, or rows b[t] of a table.
struct TermSums {
  double norms = 0;  // sum_t |b[t]| |a[t]|; of a table's rows the root of sum_t |b[t]|^2
  double count = 0;  // of the terms that are not 0
  double a_squares = 0, b_squares = 0;  // sum_t |a[t]|^2, sum_t |b[t]|^2
};

// How the terms of a parameter's gradient are summed.
struct TermBounds {
  double roundoff = 0;       // of one rounding, relative
  double split = 0;          // relative error of a term whose factor is split into two bf16
  double windows = 1;        // the patches that hold a pixel multiply the squared norms of a
  double positions = 0;      // the number of terms; 0: count those that are not 0
  double min_positions = 0;  // the error bound is that of at least so many
  double chain = 0;          // the most terms that are added one after the other; 0: exact sums
  double gram = 0;  // error bound of Gram products, relative to the squared norm of the terms
  double max_cancellation = 0;  // of the norms of terms, in a sum with other samples
  // Underflow adds these multiples of the norms of the factors.
  double underflow_a = 0, underflow_b = 0;
  bool rounds_once = false;  // one product, whose error is that of underflow alone

  // In a sum with other samples, the norms of a clipped gradient's terms may add up to
  // max_cancellation times the clip bound, or, for few positions T, to max_cancellation_of_few
  // sqrt(T) times. The norms of T terms of random directions add up to sqrt(T) times the norm of
  // their sum, four times of which is always tolerated.
  static constexpr double max_cancellation_of_few = 8, always_tolerated = 4;

  // The sum and its norm are each computed from a gradient whose terms are rounded when they are
  // multiplied and added, and a weight rounds each term of the sum twice more. The terms of a table
  // have norms that add up to `roots` times TermSums::norms at most.
  HD double error_bound(const TermSums& terms) const {
    double error = 0;
    if (!rounds_once) {
      const double added = larger(number(terms), min_positions),
                   each = chain > 0 ? roundings(added, chain) : 1,
                   all = chain > 0 ? terms.norms : terms.norms * roots(terms);
      error = all * (2 * each + 2) * roundoff + split * terms.norms;
    }
    error += underflow_a * std::sqrt(terms.a_squares);
    return error + underflow_b * std::sqrt(terms.b_squares);
  }
  // NormEstimate::term_norms.
  HD double term_norm(const TermSums& terms) const {
    if (rounds_once) return 0;
    const double rooted = roots(terms), few = max_cancellation_of_few * larger(rooted, 1),
                 most = larger(max_cancellation, always_tolerated),
                 tolerated = few < most ? few : most;
    return terms.norms / larger(always_tolerated * rooted, tolerated);
  }

 private:
  HD static double larger(double a, double b) { return a > b ? a : b; }
  HD double number(const TermSums& terms) const { return positions > 0 ? positions : terms.count; }
  HD double roots(const TermSums& terms) const { return std::sqrt(number(terms)); }
};

// One parameter of Backend::term_bounds.
struct BoundedTerms {
  TermBounds bounds;
  View a;  // squared norms [n, t] f64, or ids [n, t] i64 (negative: no term); all
           // are terms without data
  View b;  // squared norms [n, t] f64, or [n, 1] where all terms of a sample share one row
  View error_bounds, term_norms;  // [n] f64
  View lost = {};  // [n] f64, to which the errors of Gram products are added; undefined: none
};

// BoundedTerms as kernels read it.
class TermOperands {
 public:
  TermOperands() = default;
  explicit TermOperands(const BoundedTerms& terms)
      : bounds_(terms.bounds),
        a_(terms.a.data),
        b_(terms.b.as<const double>()),
        error_bounds_(terms.error_bounds.as<double>()),
        term_norms_(terms.term_norms.as<double>()),
        lost_(terms.lost.as<double>()),
        a_stride_{terms.a.stride[0], terms.a.stride[1]},
        b_stride_{terms.b.stride[0], terms.b.stride[1]},
        y_stride_{terms.error_bounds.stride[0], terms.term_norms.stride[0], terms.lost.stride[0]},
        positions_(terms.a.data ? terms.a.size[1] : terms.b.size[1]),
        table_(terms.a.data == nullptr || terms.a.dtype == Dtype::i64),
        shared_(terms.b.size[1] == 1 && positions_ > 1) {}

  HD std::int64_t positions() const { return positions_; }
  // Adds term t of sample n.
  HD void add(std::int64_t n, std::int64_t t, TermSums& sums) const {
    const double b_square = b_[n * b_stride_[0] + (shared_ ? 0 : t) * b_stride_[1]];
    const std::int64_t at = n * a_stride_[0] + t * a_stride_[1];
    if (table_) {
      const bool used = a_ == nullptr || static_cast<const std::int64_t*>(a_)[at] >= 0;
      sums.b_squares += shared_ && t > 0 ? 0 : b_square;
      sums.count += used && (shared_ || b_square > 0) ? 1 : 0;
      return;
    }
    const double a_square = static_cast<const double*>(a_)[at],
                 norm = std::sqrt(b_square) * std::sqrt(a_square * bounds_.windows);
    sums.norms += norm;
    sums.count += norm > 0 ? 1 : 0;
    sums.a_squares += a_square;
    sums.b_squares += b_square;
  }
  // Writes the bounds of sample n from its sums.
  HD void write(std::int64_t n, TermSums sums) const {
    if (table_) sums.norms = std::sqrt(sums.b_squares) * (shared_ ? std::sqrt(sums.count) : 1);
    error_bounds_[n * y_stride_[0]] = bounds_.error_bound(sums);
    term_norms_[n * y_stride_[1]] = bounds_.term_norm(sums);
    if (lost_ != nullptr) lost_[n * y_stride_[2]] += bounds_.gram * sums.norms * sums.norms;
  }

 private:
  TermBounds bounds_;
  const void* a_;
  const double* b_;
  double *error_bounds_, *term_norms_, *lost_;
  std::int64_t a_stride_[2], b_stride_[2], y_stride_[3];
  std::int64_t positions_;
  bool table_, shared_;
};

// The operands of Backend::mark_cancelled, f64: squared norms [n], and those of their factors.
struct CancelledSquares {
  View squares, a, b;  // a without data: all 1
  double times;        // squares[n] is at most `times` a[n] b[n], before rounding
  double share;        // of that bound, below which a square is cancelled

  // NaN is not.
  HD bool cancelled(std::int64_t n) const {
    const double a_square = a.data ? at(a, n) : 1;
    return at(squares, n) < at(b, n) * (a_square * times) * share;
  }

 private:
  HD static double at(const View& x, std::int64_t n) {
    return x.as<const double>()[n * x.stride[0]];
  }
};

}  // namespace sotto
