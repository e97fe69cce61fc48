// Pooling of images in any memory order: those that are not channels-last are copied, so that a
// sum's order, and thus its bits, do not depend on how a sample lies in memory.
#include <optional>

#include "core/tensor.h"
#include "kernels/cpu/conv/pool_rows.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/host_device/max_index.h"

namespace sotto {
namespace {

// Images as channels-last rows: their own memory, or a copy of it.
class Rows {
 public:
  explicit Rows(const View& images) : images_(images), rows_(images) {
    if (is_channels_last(images)) return;
    copy_.emplace(static_cast<std::size_t>(images.numel()) * size_of(images.dtype), cpu);
    rows_ = in_order(images, true);
    rows_.data = copy_->data();
  }
  // The rows, with the images' values.
  View load() const {
    if (copy_) backend(cpu).copy(images_, rows_);
    return rows_;
  }
  // The rows, to be written before store().
  View room() const { return rows_; }
  void store() const {
    if (copy_) backend(cpu).copy(rows_, images_);
  }

 private:
  View images_, rows_;
  std::optional<Storage> copy_;
};

// Calls f(type of images, type of chosen taps).
template <class F>
void with_types(const View& images, const View& argmax, const F& f) {
  dispatch_float(images.dtype,
                 [&](auto type) { with_index(argmax.dtype, [&](auto index) { f(type, index); }); });
}

}  // namespace

void CpuBackend::max_pool(View x, const Window& window, View y, View argmax) {
  const Geometry g(x, y, window);
  const Rows in(x), out(y), chosen(argmax);
  with_types(x, argmax, [&]<class T, class I>(std::type_identity<T>, std::type_identity<I>) {
    max_pool_rows(g, in.load().as<const T>(), out.room().as<T>(), chosen.room().as<I>());
  });
  out.store();
  chosen.store();
}

void CpuBackend::max_pool_grad(View dy, View argmax, const Window& window, View dx) {
  const Geometry g(dx, dy, window);
  const Rows in(dy), chosen(argmax), out(dx);
  with_types(dy, argmax, [&]<class T, class I>(std::type_identity<T>, std::type_identity<I>) {
    max_pool_rows_grad(g, in.load().as<const T>(), chosen.load().as<const I>(), out.room().as<T>());
  });
  out.store();
}

void CpuBackend::avg_pool(View x, const Window& window, bool count_padding, View y) {
  const Geometry g(x, y, window);
  const Rows in(x), out(y);
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    avg_pool_rows(g, in.load().as<const T>(), count_padding, out.room().as<T>());
  });
  out.store();
}

void CpuBackend::avg_pool_grad(View dy, const Window& window, bool count_padding, View dx) {
  const Geometry g(dx, dy, window);
  const Rows in(dy), out(dx);
  dispatch_float(dy.dtype, [&]<class T>(std::type_identity<T>) {
    avg_pool_rows_grad(g, in.load().as<const T>(), count_padding, out.room().as<T>());
  });
  out.store();
}

}  // namespace sotto
