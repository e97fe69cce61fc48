// The vocabulary of the cases: each entry as a call of the public API.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "autograd/ops.h"
#include "tests/conformance/case.h"

namespace sotto::conformance {

using Values = std::map<std::string, Var>;

// One use of an entry.
struct Call {
  const Json& args;
  const Values& in;
  Tape& tape;

  // The operand. Throws Malformed when it is missing.
  const Var& operator[](const std::string& operand) const;
  std::optional<Var> maybe(const std::string& operand) const;
  // The operands x0, x1, ... that are present.
  std::vector<Var> listed(const std::string& prefix) const;

  template <class T>
  T arg(const std::string& name) const {
    return field<T>(args, name);
  }
  Shape shape(const std::string& name) const { return shape_field(args, name); }
  int dim(const std::string& name = "dim") const { return arg<int>(name); }
  // A list of axes; empty for null, which means all axes.
  Shape dims() const;
  // A number, or `otherwise` for null.
  double number(const std::string& name, double otherwise) const;
};

using Function = std::function<Values(const Call&)>;
using Vocabulary = std::map<std::string, Function>;

void add_elementwise(Vocabulary& vocabulary);
void add_reductions(Vocabulary& vocabulary);
void add_shapes(Vocabulary& vocabulary);
void add_images(Vocabulary& vocabulary);
void add_losses(Vocabulary& vocabulary);
void add_layers(Vocabulary& vocabulary);
void add_attention(Vocabulary& vocabulary);
void add_recurrent(Vocabulary& vocabulary);

// An entry with the single output y.
Function single(Var (*f)(const Call&));
// An entry that the library does not support.
Function missing(const std::string& name);

// The outputs of an entry, or of a case's program. Throws Skip for an entry that the library does
// not support, Malformed for one that is not in the vocabulary.
Values evaluate(const std::string& type, const Call& call);
// Section 5: `program` is the list of steps, `values` the inputs and parameters; returns all values
// at the end.
Values run_program(const Json& program, Values values, Tape& tape);

}  // namespace sotto::conformance
