// A parameter's clipped sum that is computed when it is read, some rows at a time: between the two
// its factors are kept in place of the sum, which has 8 bytes for each element of the parameter.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "autograd/per_sample/per_sample_grad.h"

namespace sotto {

// The sum over samples of w[n] G[n] over all uses of a parameter in f32. The rows that are added
// have the same bits however many are computed at once, and the bits of PerSampleGrad::add_to().
class DeferredSum {
 public:
  // Returns nullptr for a sum in f64 or on a GPU, and for gradients that pass the computation of a
  // weight. `ends` is read once, here.
  static std::shared_ptr<const DeferredSum> of(const std::vector<PerSampleGrad>& uses,
                                               const Tensor& weights, const BlockEnds& ends,
                                               double spacing);

  const Shape& shape() const { return shape_; }
  std::size_t bytes() const;  // of the factors
  // False if some use has no rows that can be computed by themselves: patches, factors in 16 bits,
  // and shapes whose rows are not those of the factors.
  bool has_rows() const { return has_rows_; }
  // True if a factor shares the memory of x, whose changes would change the sum.
  bool reads(const Tensor& x) const;
  // Adds rows begin .. end - 1 to `sum`, f64 [end - begin, elements of a row]. Requires has_rows(),
  // unless these are all.
  void add_rows(std::int64_t begin, std::int64_t end, const Tensor& sum) const;
  // Returns the whole sum, f64.
  Tensor whole() const;

 private:
  // A use that is multiplied when it is read.
  struct Products {
    PerSampleGrad use;
    BlockEnds ends;
  };
  // The sum of a table's use, which is 0 in all rows but these.
  struct TableRows {
    std::vector<std::int64_t> ids;  // in rising order
    Tensor sums;                    // f64 [ids, elements of a row]
  };
  using Part = std::variant<Products, TableRows>;

  DeferredSum(const Shape& shape, const Tensor& weights, double spacing)
      : shape_(shape), weights_(weights), spacing_(spacing) {}
  Part part_of(const PerSampleGrad& use, const BlockEnds& ends) const;
  std::int64_t width() const { return shape_.numel() / shape_[0]; }

  Shape shape_;  // of the parameter
  Tensor weights_;
  double spacing_;
  std::int64_t uses_ = 0;
  bool has_rows_ = true;
  std::vector<Part> parts_;
};

}  // namespace sotto
