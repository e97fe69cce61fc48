#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

using Reduce = Var (*)(const Var&, const Shape&, bool);
using ReduceOne = Var (*)(const Var&, int, bool);

template <Reduce f>
Function over_dims() {
  return single(
      [](const Call& call) { return f(call["x"], call.dims(), call.arg<bool>("keepdim")); });
}

template <ReduceOne f>
Function over_dim() {
  return single(
      [](const Call& call) { return f(call["x"], call.dim(), call.arg<bool>("keepdim")); });
}

Var any_norm(const Call& call) {
  const bool keepdim = call.arg<bool>("keepdim");
  const auto p = call.arg<double>("p");
  if (p == 1) return sum(abs(call["x"]), call.dims(), keepdim);
  if (p == 2) return norm(call["x"], call.dims(), keepdim);
  throw Malformed("p is neither 1 nor 2");
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
  vocabulary["max"] = over_dim<max>();
  vocabulary["min"] = over_dim<min>();
  vocabulary["prod"] = over_dim<prod>();
  vocabulary["amax"] = over_dims<amax>();
  vocabulary["cumsum"] =
      single([](const Call& call) { return cumulative_sum(call["x"], call.dim()); });
}

}  // namespace sotto::conformance
