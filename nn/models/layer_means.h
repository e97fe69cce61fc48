// Features from inside a frozen model, for a classifier of their own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace sotto::nn {

// The inputs of chosen layers of a model, averaged over positions: over h and w of images [n, c, h,
// w], over t of sequences [n, t, c]. Such inputs tell more than the last features about pictures
// that differ from the model's training data.
class LayerMeans {
 public:
  // The layers whose paths the regular expression fits (PathPattern::fits_ending), in the model's
  // order: "_blocks.1[1-5]._project_conv". Throws std::invalid_argument if it fits none. The model
  // must not move.
  LayerMeans(Module& model, const std::string& pattern);
  // Calls `run`, which calls the model, and returns features [n, width]: of each layer the signed
  // square roots of its channels' means, less their average, with the squares' sum 1 / layers.
  // Throws std::invalid_argument for a layer that `run` does not call.
  Var operator()(const std::function<void()>& run) const;
  const std::vector<std::string>& paths() const { return paths_; }

 private:
  std::vector<std::string> paths_;
  std::vector<const Module*> layers_;
};

}  // namespace sotto::nn
