#include "autograd/ops/einsum.h"

#include <algorithm>
#include <map>
#include <string>

#include "autograd/ops/linear.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"

namespace sotto {

namespace {

bool holds(const std::string& labels, char label) {
  return labels.find(label) != std::string::npos;
}

template <class F>
std::string selected(const std::string& labels, F&& wanted) {
  std::string some;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(some), wanted);
  return some;
}

// A value whose axes are named by letters.
struct Named {
  Var value;
  std::string labels;

  std::int64_t size(char label) const { return value.shape()[axis(label)]; }
  int axis(char label) const {
    const std::size_t at = labels.find(label);
    check(at < static_cast<std::size_t>(value.rank()), "einsum: no axis '{}' in \"{}\"", label,
          labels);
    return static_cast<int>(at);
  }
  // The letter of the sample axis; 0 if there is none.
  char sample_label() const {
    const SampleAxis samples = value.samples();
    return samples.batched() ? labels[static_cast<std::size_t>(samples.axis())] : '\0';
  }
};

struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

void check_labels(std::string_view equation, const std::string& labels) {
  for (const char label : labels) {
    check((label >= 'a' && label <= 'z') || (label >= 'A' && label <= 'Z'),
          "einsum: '{}' in \"{}\" is not a letter", label, equation);
    check(std::count(labels.begin(), labels.end(), label) == 1,
          "einsum: '{}' twice in \"{}\" of \"{}\"", label, labels, equation);
  }
}

Equation parse(std::string_view equation) {
  const std::string text = selected(std::string(equation), [](char c) { return c != ' '; });
  const std::size_t arrow = text.find("->");
  Equation parsed{{""}, ""};
  for (const char c : text.substr(0, arrow)) {
    if (c == ',')
      parsed.operands.emplace_back();
    else
      parsed.operands.back() += c;
  }
  std::string all;
  for (const std::string& labels : parsed.operands) {
    check_labels(equation, labels);
    all += labels;
  }
  if (arrow != std::string::npos) {
    parsed.result = text.substr(arrow + 2);
    check_labels(equation, parsed.result);
    for (const char label : parsed.result)
      check(holds(all, label), "einsum: no operand of \"{}\" has '{}'", equation, label);
    return parsed;
  }
  parsed.result = selected(all, [&](char c) { return std::count(all.begin(), all.end(), c) == 1; });
  std::sort(parsed.result.begin(), parsed.result.end());
  return parsed;
}

// x with its axes in the order of `labels`.
Named ordered(const Named& x, const std::string& labels) {
  Shape axes;
  for (const char label : labels) axes.push_back(x.axis(label));
  return {labels == x.labels ? x.value : permute(x.value, axes), labels};
}

// x summed over the letters that are not in `kept`.
Named reduced(const Named& x, const std::string& kept) {
  Shape gone;
  for (const char label : x.labels) {
    if (!holds(kept, label)) gone.push_back(x.axis(label));
  }
  if (gone.rank() == 0) return x;
  return {sum(x.value, gone), selected(x.labels, [&](char c) { return holds(kept, c); })};
}

Shape sizes_of(const Named& x, const std::string& labels) {
  Shape sizes;
  for (const char label : labels) sizes.push_back(x.size(label));
  return sizes;
}

void append(Shape& shape, const Shape& more) {
  for (const std::int64_t size : more) shape.push_back(size);
}

// The letters of two operands, by their role in the product.
struct Roles {
  std::string batch;  // in both, and in the result
  std::string inner;  // in both, and summed over
  std::string a, b;   // in one operand only
};

Roles roles_of(const Named& a, const Named& b, const std::string& kept) {
  const auto in_both = [&](bool stays) {
    return selected(a.labels,
                    [&](char c) { return holds(b.labels, c) && holds(kept, c) == stays; });
  };
  return {in_both(true), in_both(false),
          selected(a.labels, [&](char c) { return !holds(b.labels, c); }),
          selected(b.labels, [&](char c) { return !holds(a.labels, c); })};
}

// Puts the sample axis first, where it survives reshaping, whatever the sizes.
std::string samples_first(std::string labels, char sample) {
  if (!holds(labels, sample)) return labels;
  return sample + selected(labels, [&](char c) { return c != sample; });
}

// Multiplies by a shared b as a matrix; letters that only a has stay separate axes.
Named through_matrix(const Named& a, const Named& b, const Roles& roles) {
  const Named left = ordered(a, samples_first(roles.a, a.sample_label()) + roles.inner);
  const Named right = ordered(b, roles.inner + roles.b);
  const std::string rows = left.labels.substr(0, roles.a.size());
  const Shape inner = sizes_of(b, roles.inner), columns = sizes_of(b, roles.b);
  Shape flat = sizes_of(a, rows), shape = flat;
  flat.push_back(inner.numel());
  append(shape, columns);
  const Var y =
      matmul(reshape(left.value, flat), reshape(right.value, {inner.numel(), columns.numel()}));
  return {reshape(y, shape), rows + roles.b};
}

// Multiplies [batch, rows, inner] x [batch, inner, columns], with a separate axis for the samples;
// its size is 1 in an operand without samples.
Named through_batches(const Named& a, const Named& b, const Roles& roles, char sample) {
  const auto others = [&](const std::string& labels) {
    return selected(labels, [&](char c) { return c != sample; });
  };
  const std::string batch = others(roles.batch), rows = others(roles.a), columns = others(roles.b);
  const auto operand = [&](const Named& x, const std::string& first, const std::string& second) {
    const std::string front = sample && holds(x.labels, sample) ? std::string(1, sample) : "";
    const Named in_order = ordered(x, front + batch + first + second);
    Shape shape;
    if (sample) shape.push_back(front.empty() ? 1 : x.size(sample));
    append(shape,
           {sizes_of(x, batch).numel(), sizes_of(x, first).numel(), sizes_of(x, second).numel()});
    return reshape(in_order.value, shape);
  };
  const Var y = matmul(operand(a, rows, roles.inner), operand(b, roles.inner, columns));
  Shape shape;
  if (sample) shape.push_back(y.shape()[0]);
  append(shape, sizes_of(a, batch));
  append(shape, sizes_of(a, rows));
  append(shape, sizes_of(b, columns));
  return {reshape(y, shape), (sample ? std::string(1, sample) : "") + batch + rows + columns};
}

// The product of two operands, summed over the letters that are not in `kept`.
Named contracted(const Named& x, const Named& y, const std::string& kept) {
  const Named a = reduced(x, kept + y.labels), b = reduced(y, kept + x.labels);
  const Roles roles = roles_of(a, b, kept);
  const char of_a = a.sample_label(), of_b = b.sample_label();
  check(!of_a || !of_b || of_a == of_b,
        "einsum: the sample axis is '{}' in one operand and '{}' in another: name it by one "
        "letter and keep it in the result",
        of_a, of_b);
  const char sample = of_a ? of_a : of_b;
  check(
      !holds(roles.inner, sample) || !sample || !(of_a ? a : b).value.tape().options().private_data,
      "einsum: the sum over '{}' mixes samples; on private data keep it in the result", sample);
  if (roles.batch.empty() && of_a && b.value.samples().is_shared())
    return through_matrix(a, b, roles);
  if (roles.batch.empty() && of_b && a.value.samples().is_shared())
    return through_matrix(b, a, {roles.batch, roles.inner, roles.b, roles.a});
  return through_batches(a, b, roles, holds(roles.inner, sample) ? '\0' : sample);
}

std::vector<Named> named(std::string_view equation, const Equation& parsed,
                         const std::vector<Var>& operands) {
  check(operands.size() == parsed.operands.size(), "einsum: {} operands for \"{}\"",
        operands.size(), equation);
  std::vector<Named> values;
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Named x{operands[i], parsed.operands[i]};
    check(x.value.rank() == static_cast<int>(x.labels.size()),
          "einsum: operand {} of shape {} for \"{}\" of \"{}\"", i, x.value.shape(), x.labels,
          equation);
    for (const char label : x.labels) {
      const std::int64_t known = sizes.try_emplace(label, x.size(label)).first->second;
      check(known == x.size(label), "einsum: '{}' of \"{}\" is {} and {}", label, equation, known,
            x.size(label));
    }
    values.push_back(x);
  }
  return values;
}

}  // namespace

Var einsum(std::string_view equation, const std::vector<Var>& operands) {
  const Equation parsed = parse(equation);
  const std::vector<Named> values = named(equation, parsed, operands);
  Named y = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    std::string kept = parsed.result;
    for (std::size_t later = i + 1; later < values.size(); ++later) kept += values[later].labels;
    y = contracted(y, values[i], kept);
  }
  return ordered(reduced(y, parsed.result), parsed.result).value;
}

}  // namespace sotto
