#include <algorithm>
#include <array>
#include <utility>

#include "core/io/weights/torch_tensors.h"

namespace sotto::weights {

namespace {

using Kind = Pickled::Kind;

constexpr int deepest = 16;                  // dictionaries within each other
constexpr std::size_t max_visits = 500'000;  // values, which a dictionary may hold many times

// Under these keys programs save the parameters of a model, beside other things.
constexpr std::array<std::string_view, 6> usual_keys = {"state_dict",  "model",  "model_state_dict",
                                                        "model_state", "module", "net"};

class Walk {
 public:
  Walk(const TorchStorages& storages, const FileContext& context)
      : storages_(storages), context_(context) {}

  WeightsFile::Contents run(const Pickled* root) {
    context_.check(root->is(Kind::dictionary), "the file holds no dictionary");
    int depth = 0;
    while (const Pickled* const inner = model_in(*root)) {
      context_.check(++depth <= deepest, "dictionaries are nested more than {} deep", deepest);
      leave_out_others(*root, *inner);
      root = inner;
    }
    visit(*root, "", 0);
    context_.check(!contents_.tensors.empty(), "the dictionary holds no tensor");
    return std::move(contents_);
  }

 private:
  std::string key_text(const Pickled& key) const {
    const bool named =
        key.is(Kind::text) && valid_utf8(key.text) && key.text.find('\0') == key.text.npos;
    const bool numbered = key.is(Kind::integer) && key.text.empty();
    context_.check(named || numbered,
                   "a key of a dictionary is neither a text nor a number: \"{}\"",
                   excerpt(key.text));
    return named ? key.text : std::to_string(key.number);
  }

  // The dictionary under the only usual key that has one, unless there are tensors beside it.
  const Pickled* model_in(const Pickled& root) {
    std::vector<std::pair<std::string, const Pickled*>> found;
    for (std::size_t k = 0; k + 1 < root.items.size(); k += 2) {
      const Pickled& value = *root.items[k + 1];
      if (is_tensor(value)) return nullptr;
      const std::string& key = root.items[k]->text;
      const bool usual = std::find(usual_keys.begin(), usual_keys.end(), key) != usual_keys.end();
      if (usual && value.is(Kind::dictionary)) found.emplace_back(key, &value);
    }
    if (found.empty()) return nullptr;
    context_.check(found.size() == 1, "the dictionary holds two models, {} and {}",
                   found.front().first, found.back().first);
    return found.front().second;
  }

  void leave_out_others(const Pickled& root, const Pickled& inner) {
    for (std::size_t k = 0; k + 1 < root.items.size(); k += 2) {
      if (root.items[k + 1] != &inner) contents_.left_out.push_back(key_text(*root.items[k]));
    }
  }

  // Adds the tensors in a value; false if there is none. Of a list or a dictionary without a tensor
  // the path alone is left out.
  bool visit(const Pickled& value, const std::string& path, int depth) {
    if (depth > deepest || ++visits_ > max_visits) {
      context_.fail("{} is nested more than {} deep, or has more than {} values", excerpt(path),
                    deepest, max_visits);
    }
    if (is_tensor(value)) {
      const FileContext here = context_.tensor(path);
      const bool added =
          contents_.tensors.emplace(path, read_tensor(value, storages_, here)).second;
      here.check(added, "the name occurs twice");
      return true;
    }
    const std::size_t left_out = contents_.left_out.size();
    const bool keyed = value.is(Kind::dictionary);
    const std::size_t step = keyed ? 2 : 1;
    bool found = false;
    if (keyed || value.is(Kind::list)) {
      for (std::size_t k = 0; k + step <= value.items.size(); k += step) {
        const std::string name = keyed ? key_text(*value.items[k]) : std::to_string(k);
        found |=
            visit(*value.items[k + step - 1], path.empty() ? name : path + "." + name, depth + 1);
      }
    }
    if (!found && depth > 0) {
      contents_.left_out.resize(left_out);
      contents_.left_out.push_back(path);
    }
    return found;
  }

  const TorchStorages& storages_;
  const FileContext& context_;
  WeightsFile::Contents contents_;
  std::size_t visits_ = 0;
};

}  // namespace

WeightsFile::Contents read_dictionary(const Pickle& pickle, const TorchStorages& storages,
                                      const FileContext& context) {
  return Walk(storages, context).run(pickle.root);
}

}  // namespace sotto::weights
