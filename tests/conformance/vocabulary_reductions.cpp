#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

using Reduce = Var (*)(const Var&, const Shape&, bool);
using Fold = Var (*)(const Var&, const Var&);

template <Reduce f>
Function over_dims() {
  return single(
      [](const Call& call) { return f(call["x"], call.dims(), call.arg<bool>("keepdim")); });
}

// f(f(x[0], x[1]), x[2]) ... along one axis.
Var fold(const Var& x, int axis, bool keepdim, Fold f) {
  Var y = select(x, axis, 0);
  for (std::int64_t i = 1; i < x.value().size(axis); ++i) y = f(y, select(x, axis, i));
  return keepdim ? unsqueeze(y, normalize_axis("fold", axis, x.rank())) : y;
}

template <Fold f>
Function over_dim() {
  return single(
      [](const Call& call) { return fold(call["x"], call.dim(), call.arg<bool>("keepdim"), f); });
}

Var amax(const Call& call) {
  const Var& x = call["x"];
  const Shape wanted = call.dims();
  const bool keepdim = call.arg<bool>("keepdim");
  std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), wanted.empty());
  for (const std::int64_t axis : wanted) {
    reduced[static_cast<std::size_t>(normalize_axis("amax", static_cast<int>(axis), x.rank()))] =
        true;
  }
  Var y = x;
  for (int axis = x.rank() - 1; axis >= 0; --axis) {
    if (reduced[static_cast<std::size_t>(axis)]) y = fold(y, axis, keepdim, maximum);
  }
  return y;
}

Var any_norm(const Call& call) {
  const bool keepdim = call.arg<bool>("keepdim");
  const auto p = call.arg<double>("p");
  if (p == 1) return sum(abs(call["x"]), call.dims(), keepdim);
  if (p == 2) return norm(call["x"], call.dims(), keepdim);
  throw Malformed("p is neither 1 nor 2");
}

// A running sum is a product with ones on and below the diagonal.
Var cumsum(const Call& call) {
  const Var& x = call["x"];
  const std::int64_t n = x.value().size(call.dim());
  std::vector<double> ones;
  for (std::int64_t i = 0; i < n * n; ++i) ones.push_back(i % n <= i / n);
  return map_axis(x, call.dim(), Tensor::from(ones, {n, n}));
}

}  // namespace

void add_reductions(Vocabulary& vocabulary) {
  vocabulary["softmax"] = single([](const Call& call) { return softmax(call["x"], call.dim()); });
  vocabulary["log_softmax"] =
      single([](const Call& call) { return log_softmax(call["x"], call.dim()); });
  vocabulary["sum"] = over_dims<sum>();
  vocabulary["mean"] = over_dims<mean>();
  vocabulary["logsumexp"] = over_dims<logsumexp>();
  vocabulary["var"] = single([](const Call& call) {
    return variance(call["x"], call.dims(), call.arg<bool>("keepdim"),
                    call.arg<double>("correction"));
  });
  vocabulary["std"] = single([](const Call& call) {
    return standard_deviation(call["x"], call.dims(), call.arg<bool>("keepdim"),
                              call.arg<double>("correction"));
  });
  vocabulary["norm"] = single(any_norm);
  vocabulary["max"] = over_dim<maximum>();
  vocabulary["min"] = over_dim<minimum>();
  vocabulary["prod"] = over_dim<mul>();
  vocabulary["amax"] = single(amax);
  vocabulary["cumsum"] = single(cumsum);
}

}  // namespace sotto::conformance
