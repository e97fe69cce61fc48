// The tensors of a dictionary that PyTorch saved, by the records of its pickle.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/io/weights/pickle.h"
#include "core/io/weights/weights_formats.h"

namespace sotto::weights {

// The elements of a storage, which tensors share.
struct TorchStorage {
  std::string type;            // "FloatStorage"
  std::optional<Dtype> dtype;  // nullopt: a type that tensors do not have
  std::int64_t width;          // bytes of an element
  std::int64_t count;          // elements
  std::int64_t used = 0;       // bytes from the beginning up to the last that a tensor has
  std::function<std::shared_ptr<void>()> first = {};  // the bytes, mapped or read

  std::int64_t bytes() const { return count * width; }
};
// By the key that the pickle gives.
using TorchStorages = std::map<std::string, std::shared_ptr<TorchStorage>>;

// True for the globals that dictionaries of tensors need.
bool known_to_torch(std::string_view name);

// The storages that a pickle refers to, without their bytes.
TorchStorages storages_of(const Pickle& pickle, const FileContext& context);

// True for a tensor or a parameter.
bool is_tensor(const Pickled& value);
// Throws unless the tensor lies within its storage.
StoredTensor read_tensor(const Pickled& value, const TorchStorages& storages,
                         const FileContext& context);

// The tensors of the dictionary that is the pickle's value, by their keys, joined by dots. Of a
// dictionary {"state_dict": ...} or {"model": ...} those in there; everything else is left out.
WeightsFile::Contents read_dictionary(const Pickle& pickle, const TorchStorages& storages,
                                      const FileContext& context);

}  // namespace sotto::weights
