#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

Vocabulary everything() {
  Vocabulary vocabulary;
  for (const auto add : {add_elementwise, add_reductions, add_shapes, add_images, add_losses,
                         add_layers, add_attention, add_recurrent}) {
    add(vocabulary);
  }
  return vocabulary;
}

Values run_step(const Json& step, const Values& values, Tape& tape) {
  Values in;
  for (const auto& [operand, value] : field<std::map<std::string, std::string>>(step, "in")) {
    const auto found = values.find(value);
    if (found == values.end()) throw Malformed("program: no value " + value);
    in.emplace(operand, found->second);
  }
  const auto op = field<std::string>(step, "op");
  const Json args = field<Json>(step, "args");
  const Values out = evaluate(op, {args, in, tape});
  Values named;
  for (const auto& [output, value] : field<std::map<std::string, std::string>>(step, "out")) {
    const auto found = out.find(output);
    if (found == out.end()) throw Malformed("program: " + op + " has no output " + output);
    named.emplace(value, found->second);
  }
  return named;
}

}  // namespace

const Var& Call::operator[](const std::string& operand) const {
  const auto found = in.find(operand);
  if (found == in.end()) throw Malformed("no operand " + operand);
  return found->second;
}

std::optional<Var> Call::maybe(const std::string& operand) const {
  const auto found = in.find(operand);
  return found == in.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Var> Call::listed(const std::string& prefix) const {
  std::vector<Var> vars;
  while (const auto x = maybe(fmt::format("{}{}", prefix, vars.size()))) vars.push_back(*x);
  return vars;
}

Shape Call::dims() const { return field<Json>(args, "dims").is_null() ? Shape{} : shape("dims"); }

double Call::number(const std::string& name, double otherwise) const {
  return field<Json>(args, name).is_null() ? otherwise : arg<double>(name);
}

Function single(Var (*f)(const Call&)) {
  return [f](const Call& call) { return Values{{"y", f(call)}}; };
}

Function missing(const std::string& name) {
  return [name](const Call&) -> Values { throw Skip("the library has no " + name); };
}

Values evaluate(const std::string& type, const Call& call) {
  static const Vocabulary vocabulary = everything();
  if (type == "Program") return run_program(field<Json>(call.args, "program"), call.in, call.tape);
  const auto found = vocabulary.find(type);
  if (found == vocabulary.end()) throw Malformed("type " + type + " is not in the vocabulary");
  try {
    return found->second(call);
  } catch (const Malformed& error) {
    throw Malformed(type + ": " + error.what());
  }
}

Values run_program(const Json& program, Values values, Tape& tape) {
  if (!program.is_array()) throw Malformed("program: not a list of steps");
  for (const Json& step : program) {
    for (auto& [name, value] : run_step(step, values, tape)) {
      if (!values.emplace(name, value).second) throw Malformed("program: " + name + " twice");
    }
  }
  return values;
}

}  // namespace sotto::conformance
