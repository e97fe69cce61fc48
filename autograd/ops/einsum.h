// Sums of products in the notation of indices.
#pragma once

#include <string_view>
#include <vector>

#include "autograd/tape.h"

namespace sotto {

// Each operand's axes are named by letters, and what the result does not name is summed over:
// "bij,bjk->bik" multiplies matrices, "bhqd,bhkd->bhqk" makes attention scores, "i,j->ij" an outer
// product, "bij->bji" a transpose. Without "->" the result has the letters that occur once, in
// alphabetical order. Products are taken from left to right; spaces mean nothing. Where a shared
// matrix meets a batched value its gradient stays factored, as in linear(). Summing over the
// samples is refused on a private tape.
//
// Throws std::invalid_argument for an equation that does not fit the operands, a letter twice in
// one operand (a diagonal) or in the result, and "...".
Var einsum(std::string_view equation, const std::vector<Var>& operands);

}  // namespace sotto
