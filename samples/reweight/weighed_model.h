// A classifier whose training rows have weights, by a gate or by a second network that learns them
// beside it in the same steps.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dp/clipping/clipper.h"
#include "nn/data/dataset.h"
#include "nn/layers.h"

namespace sotto::reweight {

// How rows get weights. gate: 1 where a step along the row's gradient lowers the loss of the clean
// rows, else 0. network: a small network's, which learns to lower it (Shu et al. 2019).
// clean_only: the clean rows are all that is trained on.
enum class Method { none, gate, network, clean_only };
std::vector<std::string> method_names();
// Throws std::invalid_argument for another name.
Method method_of(const std::string& name);

// The path of the weigher in the model.
inline constexpr const char* weigher_path = "weigher";

// A classifier and, optionally, its weigher: of a row's loss and, if it sees classes, its label it
// makes a weight from 0 to 1.
class WeighedModel final : public nn::Module {
 public:
  struct Weigher {
    std::int64_t classes = 0;  // that it sees; 0: it sees the loss alone
  };
  WeighedModel(std::unique_ptr<nn::Module> classifier, const std::optional<Weigher>& weigher);

  // The classifier's logits.
  Var forward(const Var& x) override { return (*classifier_)(x); }
  void visit(const nn::Visitor& visitor) override;
  // The weigher's weights, [n], of rows with these losses [n] and labels.
  Var weights(const Var& losses, const Tensor& labels);
  // The classifier's parameters.
  std::vector<Parameter*> classifier_parameters() { return classifier_->parameters(); }

 private:
  std::unique_ptr<nn::Module> classifier_;
  std::int64_t classes_ = 0;
  std::optional<nn::Sequential> weigher_;
};

// Computes the losses of a step from the clean rows' gradient at its beginning.
class RowWeights {
 public:
  // Each step sees `clean_batch` of the clean rows, by turns; `at_once` of them are in memory.
  RowWeights(Method method, const Dataset& clean, std::int64_t clean_batch, std::int64_t at_once);

  // Computes the gradient v of the clean rows' mean loss, over its norm, for a step. It is public,
  // or was released: the clean rows are public and the weights were released. The clipper is that
  // of the step; null for ordinary training. Throws std::invalid_argument for a gradient that is
  // not finite.
  void begin_step(WeighedModel& model, std::int64_t step, const Clipper* clipper);

  // The rows' losses, whose gradients are those of a weighted step. With g_i the gradient of row i
  // by the classifier, c_i its clip factor, w_i its weight and s_i = <g_i, v>: the classifier's is
  // w_i c_i g_i, weighed after clipping, and the weigher's that of -c_i s_i w_i, up to a factor,
  // which is what the row's part in the step adds to the clean rows' loss. Each is a function of
  // the row and of what is known.
  Var losses(Tape& tape, WeighedModel& model, const Dataset& batch) const;

  // The present weights of the rows, [n] in f64. NOT private: exact functions of the rows.
  Tensor weights_of(WeighedModel& model, const Dataset& rows);

 private:
  Var weights(WeighedModel& model, const Var& losses, const Dataset& batch) const;
  void set_direction(WeighedModel& model, const Dataset& rows);

  Method method_;
  Dataset clean_;
  std::int64_t clean_batch_, at_once_;
  Gradients direction_;
  const Clipper* clipper_ = nullptr;
};

}  // namespace sotto::reweight
