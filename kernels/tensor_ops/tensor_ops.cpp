#include "kernels/tensor_ops/tensor_ops.h"

#include <algorithm>

#include "kernels/functors/functors.h"
#include "kernels/host_device/row_arrays.h"
#include "kernels/operand_device.h"

namespace sotto {

namespace {

// A view of x broadcast to `shape`.
View spread(const Tensor& x, const Shape& shape) {
  return x.shape() == shape ? x.view() : x.expand(shape).view();
}

// An uninitialised result of `shape`, in the memory order of an operand that has this shape.
Tensor result_like(const Shape& shape, const Tensor& a, const Tensor& b, Dtype dtype) {
  for (const Tensor* x : {&a, &b}) {
    if (x->shape() == shape) return empty_like(*x, dtype, a.device());
  }
  return Tensor::empty(shape, dtype, a.device());
}

void check_ids(const Tensor& ids, std::int64_t size) {
  check(ids.dtype() == Dtype::i64 && ids.rank() == 1,
        "gather: ids are {} of shape {}, but must be i64 with one axis", name(ids.dtype()),
        ids.shape());
  if (ids.device() != cpu) return;  // the GPU's kernel handles ids past the end
  const std::int64_t* const first = ids.data<std::int64_t>();
  const std::int64_t count = ids.numel(), step = ids.strides()[0];
  std::int64_t largest = -1;
  for (std::int64_t k = 0; k < count; ++k) largest = std::max(largest, first[k * step]);
  check(largest < size, "gather: id {} in an axis of size {}", largest, size);
}

}  // namespace

Tensor full(const Shape& shape, double value, Dtype dtype, Device device) {
  Tensor y = Tensor::empty(shape, dtype, device);
  backend(device).fill(value, y.view());
  return y;
}

Tensor zeros(const Shape& shape, Dtype dtype, Device device) {
  return full(shape, 0, dtype, device);
}

Tensor empty_like(const Tensor& x, Dtype dtype, Device device) {
  for (int i = 0; i < x.rank(); ++i) {
    if (x.strides()[i] == 0 && x.size(i) > 1) return Tensor::empty(x.shape(), dtype, device);
  }
  return Tensor::empty_ordered(x.shape(), x.memory_order(), dtype, device);
}

Tensor empty_like(const Tensor& x) { return empty_like(x, x.dtype(), x.device()); }

Tensor zeros_like(const Tensor& x) {
  Tensor y = empty_like(x);
  backend_of(x).fill(0, y.view());
  return y;
}

Tensor contiguous(const Tensor& x) {
  if (x.contiguous()) return x;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  backend_of(x).copy(x.view(), y.view());
  return y;
}

Tensor clone(const Tensor& x) {
  Tensor y = empty_like(x);
  backend_of(x).copy(x.view(), y.view());
  return y;
}

Tensor to_dtype(const Tensor& x, Dtype dtype) {
  if (x.dtype() == dtype) return x;
  Tensor y = empty_like(x, dtype, x.device());
  backend_of(x).copy(x.view(), y.view());
  return y;
}

Dtype arithmetic_type(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16 ? Dtype::f32 : dtype;
}

Tensor reshape(const Tensor& x, const Shape& shape) {
  if (auto y = x.view_as(shape)) return *y;
  return *contiguous(x).view_as(shape);
}

void copy_into(const Tensor& x, const Tensor& y) {
  const Tensor from = x.to(y.device());
  backend_of(y).copy(spread(from, y.shape()), y.view());
}

// Pairs of one device, without gaps and in one memory order, go together.
void copy_all(const std::vector<std::pair<Tensor, Tensor>>& pairs, bool add) {
  std::vector<ArrayCopy> together;
  for (const auto& [x, y] : pairs) {
    check(x.shape() == y.shape(), "copy_all: {} to {}", x.shape(), y.shape());
    const bool alike = x.strides() == y.strides() && y.is_dense() && x.device() == y.device() &&
                       y.device() == pairs[0].second.device();
    const bool floats = is_float(x.dtype()) && is_float(y.dtype());
    if (alike && (x.dtype() == y.dtype() ? floats || !add : floats && !add))
      together.push_back({x.view(), y.view()});
    else
      add ? axpby(1, x, 1, y) : copy_into(x, y);
  }
  if (!together.empty()) backend_of(pairs[0].second).copy_all(together, add);
}

Tensor bernoulli(PhiloxKey key, const std::vector<RowDraws>& rows, double keep, const Shape& shape,
                 Device device) {
  check(shape.rank() > 0 && shape[0] == std::ssize(rows), "bernoulli: {} rows for the shape {}",
        rows.size(), shape);
  std::vector<std::int64_t> numbers;
  for (const RowDraws& draws : rows) {
    numbers.push_back(static_cast<std::int64_t>(draws.row));
    numbers.push_back(static_cast<std::int64_t>(draws.first));
  }
  const Tensor y = Tensor::empty(shape, Dtype::boolean, device);
  const Tensor from = Tensor::from(numbers, {shape[0], 2}).to(device);
  backend(device).bernoulli(key, from.view(), keep, y.view());
  return y;
}

Tensor concat(const std::vector<Tensor>& parts, int axis) {
  check(!parts.empty(), "concat: no tensors");
  Shape shape = parts[0].shape();
  axis = normalize_axis("concat", axis, shape.rank());
  shape[axis] = 0;
  for (const Tensor& part : parts) {
    check_same_type("concat", parts[0], part);
    Shape rest = part.shape();
    check(rest.rank() == shape.rank(), "concat: {} beside {}", part.shape(), parts[0].shape());
    shape[axis] += rest[axis];
    rest[axis] = shape[axis];
    check(rest == shape, "concat: shapes {} and {} differ beyond axis {}", part.shape(),
          parts[0].shape(), axis);
  }
  const auto on_gpu = std::find_if(parts.begin(), parts.end(),
                                   [](const Tensor& part) { return part.device() != cpu; });
  const Device device = on_gpu == parts.end() ? cpu : on_gpu->device();
  Tensor y = Tensor::empty(shape, parts[0].dtype(), device);
  std::int64_t at = 0;
  for (const Tensor& part : parts) {
    copy_into(part, y.slice(axis, at, at + part.size(axis)));
    at += part.size(axis);
  }
  return y;
}

Tensor gather(const Tensor& x, const Tensor& ids, int axis) {
  if (on_different_devices(x, ids)) return gather(to_device_of(x, ids), to_device_of(ids, x), axis);
  axis = normalize_axis("gather", axis, x.rank());
  check_ids(ids, x.size(axis));
  Shape shape = x.shape();
  shape[axis] = ids.numel();
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  backend_of(x).gather(x.view(), ids.view(), axis, y.view());
  return y;
}

Tensor scatter_add(const Tensor& x, const Tensor& ids, int axis, std::int64_t size) {
  if (on_different_devices(x, ids))
    return scatter_add(to_device_of(x, ids), to_device_of(ids, x), axis, size);
  Shape shape = x.shape();
  shape[normalize_axis("scatter_add", axis, x.rank())] = size;
  Tensor y = zeros(shape, x.dtype(), x.device());
  scatter_add_into(x, ids, axis, y);
  return y;
}

void scatter_add_into(const Tensor& x, const Tensor& ids, int axis, const Tensor& y) {
  axis = normalize_axis("scatter_add", axis, x.rank());
  const Tensor all = reshape(ids.to(y.device()), {-1}), from = x.to(y.device());
  check_ids(all, y.size(axis));
  Shape shape = x.shape();
  check(ids.rank() >= 1 && shape[axis] == ids.size(0),
        "scatter_add: ids of shape {} for axis {} of {}", ids.shape(), axis, shape);
  shape[axis] = y.size(axis);
  check(y.shape() == shape, "scatter_add: {} does not fit {}", shape, y.shape());
  backend_of(y).scatter_add(from.view(), all.view(), axis, y.view());
}

Tensor unary(int op, const Tensor& x, Constants constants, const Tensor& into) {
  Tensor y = into.defined() ? into : empty_like(x);
  backend_of(x).unary(op, constants, x.view(), y.view());
  return y;
}

Tensor unary_grad(int op, const Tensor& x, const Tensor& y, const Tensor& dy, Constants constants,
                  const Tensor& into) {
  Tensor dx = into.defined() ? into : empty_like(dy);
  backend_of(x).unary_grad(op, constants, spread(x, dy.shape()), spread(y, dy.shape()), dy.view(),
                           dx.view());
  return dx;
}

Tensor binary(int op, const Tensor& a, const Tensor& b, const Tensor& into) {
  const char* name = nullptr;
  BinaryFunctors::at(op, [&]<class F>(std::type_identity<F>) { name = F::name; });
  const bool mixed = op == binary_index<functors::Add> && is_mixed(a.dtype(), b.dtype());
  if (!mixed) check_same_type(name, a, b);
  if (on_different_devices(a, b))
    return binary(op, to_device_of(a, b), to_device_of(b, a));  // `into` may be elsewhere
  const Shape shape = broadcast_shapes(name, a.shape(), b.shape());
  const Dtype type = mixed ? Dtype::f32 : a.dtype();
  check(!into.defined() || into.dtype() == type, "{}: a result in {}", name,
        sotto::name(into.defined() ? into.dtype() : type));
  Tensor y = into.defined() ? into : result_like(shape, a, b, type);
  View left = spread(a, shape), right = spread(b, shape);
  if (is_16bit(left.dtype) && mixed) std::swap(left, right);
  backend_of(a).binary(op, left, right, y.view());
  return y;
}

Tensor binary_grad(int op, int which, const Tensor& a, const Tensor& b, const Tensor& dy,
                   const Tensor& into) {
  Tensor d = into.defined() && into.device() == dy.device() ? into : empty_like(dy);
  const Tensor left = to_device_of(a, dy), right = to_device_of(b, dy);
  backend_of(dy).binary_grad(op, which, spread(left, dy.shape()), spread(right, dy.shape()),
                             dy.view(), d.view());
  return d;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& into) {
  check_same_type("where", a, b);
  if (on_different_devices(a, b)) return where(condition, to_device_of(a, b), to_device_of(b, a));
  if (on_different_devices(condition, a)) {
    return where(to_device_of(condition, a), to_device_of(a, condition),
                 to_device_of(b, condition));
  }
  const Shape pair = broadcast_shapes("where", a.shape(), b.shape());
  const Shape shape = broadcast_shapes("where", condition.shape(), pair);
  Tensor y = into.defined() ? into : result_like(shape, a, b, a.dtype());
  backend_of(a).where(spread(condition, shape), spread(a, shape), spread(b, shape), y.view());
  return y;
}

Tensor add(const Tensor& a, const Tensor& b) { return binary(binary_index<functors::Add>, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary(binary_index<functors::Sub>, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary(binary_index<functors::Mul>, a, b); }

Tensor scale(const Tensor& x, double factor) {
  Tensor y = empty_like(x);
  axpby(factor, x, 0, y);
  return y;
}

void axpby(double alpha, const Tensor& x, double beta, const Tensor& y) {
  const Tensor from = x.to(y.device());
  backend_of(y).axpby(alpha, spread(from, y.shape()), beta, y.view());
}

namespace {

Tensor reduced(Reduction op, const Tensor& x, const Shape& axes, bool keepdim, Dtype dtype) {
  Shape shape = x.shape();
  bool gone[max_rank] = {};
  for (int i = 0; i < x.rank(); ++i) gone[i] = axes.empty();
  for (const std::int64_t axis : axes)
    gone[normalize_axis("reduce", static_cast<int>(axis), x.rank())] = true;
  for (int i = 0; i < x.rank(); ++i) {
    check(op == Reduction::sum || op == Reduction::product || !gone[i] || shape[i] > 0,
          "reduce: max or min over the empty axis {} of {}", i, shape);
    if (gone[i]) shape[i] = 1;
  }
  Tensor y = Tensor::empty(shape, dtype, x.device());
  if (shape == x.shape()) {
    backend_of(x).copy(x.view(), y.view());  // each result has one element
  } else {
    backend_of(x).reduce(op, x.view(), y.view());
  }
  if (!keepdim) {
    for (int i = x.rank() - 1; i >= 0; --i) {
      if (gone[i]) y = y.squeeze(i);
    }
  }
  return y;
}

// Sums x over the axes that broadcasting from `shape` added or expanded, by `add_up(axes)`.
template <class F>
Tensor summed_to(const Tensor& x, const Shape& shape, F&& add_up) {
  if (x.shape() == shape) return x;
  Shape axes;
  const int lead = x.rank() - shape.rank();
  for (int i = 0; i < x.rank(); ++i) {
    if (i < lead || (shape[i - lead] == 1 && x.size(i) != 1)) axes.push_back(i);
  }
  Tensor y = axes.empty() ? x : add_up(axes);
  for (int i = 0; i < lead; ++i) y = y.squeeze(0);
  return y;
}

}  // namespace

Tensor reduce(Reduction op, const Tensor& x, const Shape& axes, bool keepdim) {
  return reduced(op, x, axes, keepdim, x.dtype());
}

Tensor sum(const Tensor& x, const Shape& axes, bool keepdim) {
  return reduced(Reduction::sum, x, axes, keepdim, x.dtype());
}

Tensor sum_f32(const Tensor& x, const Shape& axes, bool keepdim) {
  return reduced(Reduction::sum, x, axes, keepdim, arithmetic_type(x.dtype()));
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  return summed_to(x, shape, [&](const Shape& axes) { return sum(x, axes, true); });
}

Tensor sum_to_f32(const Tensor& x, const Shape& shape) {
  return summed_to(x, shape, [&](const Shape& axes) { return sum_f32(x, axes, true); });
}

Tensor argmax(const Tensor& x, int axis) {
  check(x.rank() > 0 && x.size(axis) > 0, "argmax: over axis {} of {}", axis, x.shape());
  const Tensor rows = contiguous(x.transpose(axis, -1));
  const Tensor y = Tensor::empty(rows.slice(-1, 0, 1).shape(), Dtype::i64, x.device());
  backend_of(x).argmax(rows.view(), y.squeeze(-1).view());
  return contiguous(y.transpose(axis, -1).squeeze(axis));
}

namespace {

void check_along(const Tensor& ids, int axis, const Shape& target) {
  bool fits = ids.dtype() == Dtype::i64 && ids.rank() == target.rank();
  for (int i = 0; fits && i < ids.rank(); ++i) fits = i == axis || ids.size(i) <= target[i];
  check(fits, "ids are {} of shape {}, which does not fit axis {} of {}", name(ids.dtype()),
        ids.shape(), axis, target);
  if (ids.device() != cpu) return;
  for (const std::int64_t id : ids.to_vector<std::int64_t>()) {
    check(id >= 0 && id < target[axis], "id {} is outside of axis {} of {}", id, axis, target);
  }
}

}  // namespace

Tensor take_along(const Tensor& x, const Tensor& ids, int axis) {
  if (on_different_devices(x, ids))
    return take_along(to_device_of(x, ids), to_device_of(ids, x), axis);
  check_along(ids, axis, x.shape());
  Tensor y = Tensor::empty(ids.shape(), x.dtype(), x.device());
  backend_of(x).take_along(x.view(), ids.view(), axis, y.view());
  return y;
}

Tensor put_along(const Tensor& x, const Tensor& ids, int axis, const Shape& shape) {
  if (on_different_devices(x, ids))
    return put_along(to_device_of(x, ids), to_device_of(ids, x), axis, shape);
  check_along(ids, axis, shape);
  check(x.shape() == ids.shape(), "put_along: values {} for ids {}", x.shape(), ids.shape());
  Tensor y = zeros(shape, x.dtype(), x.device());
  backend_of(x).put_along_add(x.view(), ids.view(), axis, y.view());
  return y;
}

}  // namespace sotto
