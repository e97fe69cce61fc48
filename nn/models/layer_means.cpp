#include "nn/models/layer_means.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "autograd/ops.h"
#include "nn/models/path_pattern.h"

namespace sotto::nn {

namespace {

// [n, c] of [n, c], [n, t, c] or [n, c, h, w].
Var mean_of_positions(const Var& x) {
  const int rank = x.rank();
  check(rank >= 2 && rank <= 4, "LayerMeans: a layer takes {}", x.shape());
  if (rank == 2) return x;
  return rank == 3 ? mean(x, {1}) : mean(x, {2, 3});
}

// Roots lessen the weight of the few channels that are large.
Var scaled(const Var& means, std::size_t layers) {
  constexpr double least = 1e-12;  // of a sum of squares that is divided by
  const Var roots = means * rsqrt(abs(means) + least);
  const Var centred = roots - mean(roots, {1}, true);
  const Var squares = sum(square(centred), {1}, true) * static_cast<double>(layers);
  return centred * rsqrt(squares + least);
}

}  // namespace

LayerMeans::LayerMeans(Module& model, const std::string& pattern) {
  const PathPattern fitting(pattern);
  const std::function<void(Module&, const std::string&)> add = [&](Module& module,
                                                                   const std::string& path) {
    module.visit(Visitor([](const std::string&, Parameter&) {},
                         [&](const std::string& name, Module& child) {
                           if (fitting.fits_ending(path + name)) {
                             paths_.push_back(path + name);
                             layers_.push_back(&child);
                           }
                           add(child, path + name + ".");
                         }));
  };
  add(model, "");
  check(!layers_.empty(), "LayerMeans: \"{}\" fits no layer", pattern);
}

Var LayerMeans::operator()(const std::function<void()>& run) const {
  std::vector<std::optional<Var>> means(layers_.size());
  {
    const ModuleHook hook([&](const Module& module, const Var& x, const Var&) {
      const auto at = std::ranges::find(layers_, &module);
      if (at == layers_.end()) return;
      means[static_cast<std::size_t>(at - layers_.begin())] =
          scaled(mean_of_positions(x), layers_.size());
    });
    run();
  }
  std::vector<Var> parts;
  for (std::size_t k = 0; k < means.size(); ++k) {
    check(means[k].has_value(), "LayerMeans: the model does not call {}", paths_[k]);
    parts.push_back(*means[k]);
  }
  return concat(parts, 1);
}

}  // namespace sotto::nn
