#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

Values parts(const Call& call) {
  Values named;
  for (const Var& part :
       split(call["x"], call.dim(), call.arg<std::vector<std::int64_t>>("sizes"))) {
    named.emplace(fmt::format("y{}", named.size()), part);
  }
  return named;
}

Var rolled(const Call& call) {
  const Shape shifts = call.shape("shifts");
  const Shape dims = call.shape("dims");
  if (shifts.rank() != dims.rank()) throw Malformed("as many shifts as dims are needed");
  Var y = call["x"];
  for (int i = 0; i < dims.rank(); ++i) y = roll(y, static_cast<int>(dims[i]), shifts[i]);
  return y;
}

Var index_select(const Call& call) {
  return take(call["x"], call.dim(), call["index"].value().to_vector<std::int64_t>());
}

// A border of `size` elements with the value `value`, for one sample; concat repeats it.
Var border(const Call& call, const Var& x, int axis, std::int64_t size) {
  Shape shape = x.shape();
  shape[axis] = size;
  if (x.samples().batched() && x.samples().axis() != axis) shape[x.samples().axis()] = 1;
  return call.tape.constant(full(shape, call.arg<double>("value"), x.dtype()));
}

PadMode pad_mode(const std::string& name) {
  if (name == "constant") return PadMode::zeros;
  if (name == "reflect") return PadMode::reflect;
  if (name == "replicate") return PadMode::replicate;
  if (name == "circular") return PadMode::circular;
  throw Malformed("mode is " + name);
}

Var padded(const Call& call) {
  Var y = call["x"];
  const auto pads = call.arg<std::vector<std::array<std::int64_t, 2>>>("pads");
  if (static_cast<int>(pads.size()) != y.rank()) throw Malformed("pads do not fit the operand");
  const PadMode mode = pad_mode(call.arg<std::string>("mode"));
  const bool filled = mode == PadMode::zeros && call.arg<double>("value") != 0;
  for (int axis = 0; axis < y.rank(); ++axis) {
    const auto [before, after] = pads[static_cast<std::size_t>(axis)];
    if (before == 0 && after == 0) continue;
    y = filled ? concat({border(call, y, axis, before), y, border(call, y, axis, after)}, axis)
               : pad(y, axis, before, after, mode);
  }
  return y;
}

}  // namespace

void add_shapes(Vocabulary& vocabulary) {
  vocabulary["reshape"] =
      single([](const Call& call) { return reshape(call["x"], call.shape("shape")); });
  vocabulary["flatten"] = single([](const Call& call) {
    return flatten(call["x"], call.dim("start_dim"), call.dim("end_dim"));
  });
  vocabulary["permute"] =
      single([](const Call& call) { return permute(call["x"], call.shape("dims")); });
  vocabulary["transpose"] = single(
      [](const Call& call) { return transpose(call["x"], call.dim("dim0"), call.dim("dim1")); });
  vocabulary["expand"] =
      single([](const Call& call) { return expand(call["x"], call.shape("shape")); });
  vocabulary["squeeze"] = single([](const Call& call) { return squeeze(call["x"], call.dim()); });
  vocabulary["unsqueeze"] =
      single([](const Call& call) { return unsqueeze(call["x"], call.dim()); });
  vocabulary["slice"] = single([](const Call& call) {
    return slice(call["x"], call.dim(), call.arg<std::int64_t>("start"),
                 call.arg<std::int64_t>("stop"), call.arg<std::int64_t>("step"));
  });
  vocabulary["select"] = single([](const Call& call) {
    return select(call["x"], call.dim(), call.arg<std::int64_t>("index"));
  });
  vocabulary["concat"] =
      single([](const Call& call) { return concat(call.listed("x"), call.dim()); });
  vocabulary["stack"] =
      single([](const Call& call) { return stack(call.listed("x"), call.dim()); });
  vocabulary["split"] = parts;
  vocabulary["flip"] = single([](const Call& call) { return flip(call["x"], call.shape("dims")); });
  vocabulary["roll"] = single(rolled);
  vocabulary["repeat"] =
      single([](const Call& call) { return repeat(call["x"], call.shape("repeats")); });
  vocabulary["tril"] =
      single([](const Call& call) { return tril(call["x"], call.arg<std::int64_t>("diagonal")); });
  vocabulary["triu"] =
      single([](const Call& call) { return triu(call["x"], call.arg<std::int64_t>("diagonal")); });
  vocabulary["index_select"] = single(index_select);
  vocabulary["gather"] =
      single([](const Call& call) { return gather(call["x"], call.dim(), call["index"]); });
  vocabulary["scatter_add"] = single([](const Call& call) {
    return scatter_add(call["x"], call.dim(), call["index"], call["src"]);
  });
  vocabulary["where"] =
      single([](const Call& call) { return where(call["cond"], call["a"], call["b"]); });
  vocabulary["masked_fill"] = single([](const Call& call) {
    return masked_fill(call["x"], call["mask"], call.arg<double>("value"));
  });
  vocabulary["pad"] = single(padded);
}

}  // namespace sotto::conformance
