// Files of weights that other software wrote: safetensors, PyTorch's (.pth, .bin) and GGUF, whole
// or in shards.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/block_matrix.h"
#include "core/tensor.h"

namespace sotto {

// A tensor of a file, which is read when it is asked for.
struct StoredTensor {
  Shape shape;
  std::string type;                        // as the file's format spells it: "F32", "I64", "Q4_K"
  std::optional<Dtype> dtype = {};         // nullopt: a block format, or a type not supported
  std::optional<BlockFormat> format = {};  // of blocks
  std::optional<Shape> strides = {};       // in elements; nullopt: row-major
  std::function<std::shared_ptr<void>()> first = {};  // the elements, mapped or read
};

// The contents of a file of weights. The elements are in a private mapping of the file: pages are
// read when they are used, and written ones are copies. A file that is replaced by another (by
// rename, as all savers do that are atomic) stays as it was for its mappings; one that is truncated
// or overwritten in place while its tensors are used changes under them or ends the process
// (SIGBUS), as it does programs and libraries.
class WeightsFile {
 public:
  struct Contents;
  WeightsFile(std::string path, std::shared_ptr<const Contents> contents);

  const std::map<std::string, StoredTensor>& tensors() const;
  // A tensor on the CPU. It shares the mapping where the elements are row-major and aligned. Throws
  // std::invalid_argument, with the file and the name, if there is none of this name, its type is
  // not supported, or it is in a block format: kernels/quantized/quantized.h widens blocks.
  Tensor tensor(const std::string& name) const;
  // The blocks of a tensor of a block format as they lie, [rows, columns] with all axes but the
  // last as rows; nullopt for other types. Throws if there is no tensor of this name.
  std::optional<BlockMatrix> blocks(const std::string& name) const;
  // GGUF's keys and values, safetensors' __metadata__; an empty object without any.
  const nlohmann::json& metadata() const;
  // Entries of a dictionary that PyTorch saved that are no tensors, such as "epoch", or not of the
  // model, such as "optimizer".
  const std::vector<std::string>& left_out() const;
  const std::string& path() const { return path_; }

 private:
  const StoredTensor& stored(const std::string& name) const;

  std::string path_;
  std::shared_ptr<const Contents> contents_;
};

// Opens a file of weights, told by its first bytes; the index of shards; or a folder with one of
// these. Throws SystemFailure if a file cannot be read, and std::invalid_argument, with the file
// and the tensor, if it violates its format.
WeightsFile open_weights(const std::string& path);

}  // namespace sotto
