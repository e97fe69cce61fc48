// The kinds of cases. Each runs a case in one dtype and passes the results to the comparison; all
// throw Skip and Malformed, and let the library's exceptions propagate.
#pragma once

#include "autograd/parameter.h"
#include "nn/optim/optimizer.h"
#include "tests/conformance/comparison.h"
#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

void run_op(const Case& c, Dtype dtype, Comparison& comparison);
void run_layer(const Case& c, Dtype dtype, Comparison& comparison);
void run_dp_step(const Case& c, Dtype dtype, Comparison& comparison);
// Plays the case's ranks, as threads.
void run_distributed(const Case& c, Dtype dtype, Comparison& comparison);
void run_optim(const Case& c, Dtype dtype, Comparison& comparison);
void run_multilevel(const Case& c, Dtype dtype, Comparison& comparison);
void run_model(const Case& c, Dtype dtype, Comparison& comparison);
// The same in every dtype.
void run_tokenizer(const Case& c, Dtype dtype, Comparison& comparison);
void run_private_reweight(const Case& c, Dtype dtype, Comparison& comparison);

// The loss of each row from its tokens' logits, by a case's `token_reduce`: their mean or sum.
Var token_loss(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options,
               const std::string& reduce);

// Computes the number of an accountant table's row, to be compared with the row's `accept`.
double run_accountant_row(const Json& table, const Json& row);

// Tapes of a run in f16 or bf16 compute in that precision, from f32 values.
TapeOptions tape_options(Dtype dtype, bool private_data = false);
// The parameters of a case, which stay where they are.
using Parameters = std::map<std::string, Parameter>;
void make_parameters(const Case& c, Dtype dtype, Parameters& parameters);
// A tensor's values as the input of a run in that dtype; indices stay i64.
Tensor in_dtype(const Tensor& value, Dtype dtype);

// Section 9: an optimizer of that type. Throws Malformed for an unknown one.
struct OptimizerGroup {
  Json options;
  std::vector<Parameter*> parameters;
};
std::unique_ptr<nn::Optimizer> make_optimizer(const std::string& type,
                                              const std::vector<OptimizerGroup>& groups);

}  // namespace sotto::conformance
