// The kinds of cases. Each runs a case in one dtype and hands what it computed to the comparison;
// all throw Skip and Malformed, and let the library's exceptions pass.
#pragma once

#include "autograd/parameter.h"
#include "tests/conformance/comparison.h"
#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

void run_op(const Case& c, Dtype dtype, Comparison& comparison);
void run_layer(const Case& c, Dtype dtype, Comparison& comparison);
void run_dp_step(const Case& c, Dtype dtype, Comparison& comparison);
void run_optim(const Case& c, Dtype dtype, Comparison& comparison);

// A row of an accountant table: the number computed, to be compared with the row's `accept`.
double run_accountant_row(const Json& table, const Json& row);

// Tapes of a run in f16 or bf16 compute in that precision, from values in f32.
TapeOptions tape_options(Dtype dtype, bool private_data = false);
// The parameters of a case, which stay where they are.
using Parameters = std::map<std::string, Parameter>;
void make_parameters(const Case& c, Dtype dtype, Parameters& parameters);
// A tensor's values as a run in that dtype begins with them; indices stay i64.
Tensor in_dtype(const Tensor& value, Dtype dtype);

}  // namespace sotto::conformance
