// Pieces that models of several publishers share.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/ops/sequence/attention.h"
#include "nn/module.h"
#include "nn/without_init.h"

namespace sotto::nn {

// An activation by its name in a config.json: "gelu", "gelu_new", "silu". Throws
// std::invalid_argument, with the config's field, for an unknown one.
std::function<Var(Var)> activation_of(const std::string& name, const std::string& field);

// A mask for attention() that hides padding: [n, 1, 1, t] from attention_mask [n, t], 1 a token;
// none from none. A query that sees no key gets zeros.
std::vector<Var> hidden_keys(const std::optional<Var>& attention_mask);

// [n, t, heads e] to [n, heads, t, e], and back.
Var split_heads(const Var& x, std::int64_t heads);
Var merge_heads(const Var& x);

// Stochastic depth (Huang et al. 2016), in training alone: a sample's whole branch [n, ...] is 0
// with probability `rate`, and else divided by 1 - rate.
Var drop_path(Var branch, double rate);

// A linear layer as a child that tuning and loading can replace.
std::unique_ptr<Module> linear_child(std::int64_t in, std::int64_t out, bool bias = true);
// An embedding table as such a child.
std::unique_ptr<Module> embedding_child(std::int64_t rows, std::int64_t features,
                                        std::optional<std::int64_t> padding = std::nullopt);

// Logits of the output layer that is the table of tokens: y[.., row] = sum_i x[.., i] table[row,
// i]. An adapter around the table takes no part, as in PEFT. Throws std::invalid_argument for a
// module that is no table.
Var tied_output(Module& table, const Var& x);

// While one lives, linear layers and tables are made without initial values, which draw_initial()
// draws for the whole model.
class InitLater {
 public:
  InitLater();

 private:
  std::optional<WithoutInit> guard_;
};
// Draws matrices from a normal distribution whose standard deviation `deviation` gives for a name,
// and sets biases to 0; nothing inside a WithoutInit.
void draw_initial(Module& model, const std::function<double(const std::string& name)>& deviation);

// 0, 1, ... t - 1 in each row, i64 [n, t] like the ids: the positions of a model that is given
// none.
Var positions_of(const Var& ids);

}  // namespace sotto::nn
