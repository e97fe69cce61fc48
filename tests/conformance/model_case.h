// A case of kind `model`: a checkpoint as the library loads it, and the names of its files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/models/pretrained.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

// A tensor of the files, in the model: the rows of several parameters, or one with [in, out].
struct StoredParameter {
  std::vector<Parameter*> parameters;
  bool transposed = false;
  // The parameters' values, or gradients of theirs, as the file has them; absent ones are zero.
  Tensor value() const;
  Tensor of(const Gradients& gradients) const;

 private:
  Tensor joined(const std::vector<Tensor>& parts) const;
};

struct ModelCase {
  // Throws what load_pretrained() throws.
  ModelCase(const Case& c, Dtype dtype);

  // Compares what was loaded, tied, passed over and made anew with the case's lists.
  void check_lists(Comparison& comparison) const;
  // Puts in the start values of parameters that the checkpoint lacks, and trains those of the case.
  void prepare();
  // Loads the case's adapter, and adds its tensors to `stored`.
  void add_adapter(Comparison& comparison);

  Var logits(Tape& tape);
  Var loss(const Var& logits) const;  // [rows]
  std::vector<Parameter*> trained();
  // The modules after which expect.block.1, ... stand.
  std::vector<std::string> block_paths() const;

  const Case& c;
  Dtype dtype;
  nn::Pretrained loaded;
  std::map<std::string, StoredParameter> stored;  // by their names in the files

 private:
  void place();  // in the case's type, on its device
};

}  // namespace sotto::conformance
