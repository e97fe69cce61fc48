// Einstein summation: sums of products in index notation.
#pragma once

#include <string_view>
#include <vector>

#include "autograd/tape.h"

namespace sotto {

// Letters name each operand's axes; letters that the result does not have are summed over.
// "bij,bjk->bik" multiplies matrices, "bhqd,bhkd->bhqk" computes attention scores, "i,j->ij" an
// outer product, "bij->bji" a transpose. Without "->" the result has the letters that occur once,
// in alphabetical order. Products are computed from left to right; spaces are ignored. The product
// of a batched value and a shared matrix keeps its per-sample gradient factored, as linear() does.
// A private tape refuses to sum over the samples.
//
// Throws std::invalid_argument for an equation that does not fit the operands, a letter twice in
// one operand (a diagonal) or in the result, and "...".
Var einsum(std::string_view equation, const std::vector<Var>& operands);

}  // namespace sotto
