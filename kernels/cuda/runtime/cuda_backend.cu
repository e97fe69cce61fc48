#include "kernels/cuda/runtime/cuda_backend.h"

#include <optional>

#include "kernels/cuda/copy_fill.h"
#include "kernels/cuda/runtime/device_backend.h"
#include "kernels/cuda/runtime/execution.cuh"
#include "kernels/cuda/runtime/gpu_costs.h"
#include "kernels/cuda/runtime/scratch.h"
#include "kernels/host_device/fold_batch.h"
#include "kernels/tf32.h"

namespace sotto {

namespace {

// A factor that the library can read: the view itself, or a row-major copy.
class Readable {
 public:
  Readable(const CudaExec& exec, const View& x) : view_(x) {
    if (library_reads(x)) return;
    const auto width = static_cast<std::int64_t>(size_of(x.dtype));
    copy_.emplace(exec.device(), x.numel() * width);
    view_.data = copy_->data();
    std::int64_t stride = 1;
    for (int i = x.rank - 1; i >= 0; --i) {
      view_.stride[i] = stride;
      stride *= x.size[i];
    }
    dispatch_bits(x.dtype, [&]<class Bits>(std::type_identity<Bits>) {
      copy_strided<Bits>(exec, LoopNest<2>(std::array{x, view_}), x, view_);
    });
  }
  const View& view() const { return view_; }

 private:
  View view_;
  std::optional<Scratch<char>> copy_;
};

class CudaBackend final : public DeviceBackend<CudaExec> {
 public:
  explicit CudaBackend(DeviceState& state) : state_(state) {}
  std::string name() const override { return "cuda"; }

  CostModel costs(Dtype factors) const override { return gpu_costs(factors); }

  void gemm(View a, View b, double beta, View c) override {
    const CudaExec exec = execution("gemm", {&a, &b, &c});
    exec.product(a, b, beta, c, exec.tf32());
  }
  void affine(View a, View b, View bias, View c) override {
    if (!library_adds(a, bias, c)) return Backend::affine(a, b, bias, c);
    execution("affine", {&a, &b, &bias, &c}).affine(a, b, bias, c);
  }

 protected:
  CudaExec execution(const char* op, Views views) override {
    return CudaExec(state_, Call(op, state_.device(), views), tf32_ && !NoTf32Scope::wanted());
  }

 private:
  DeviceState& state_;
  bool tf32_ = tf32_used();
};

}  // namespace

void CudaExec::product(View a, View b, double beta, View c, bool tf32) const {
  if (c.numel() == 0) return;
  if (a.size[a.rank - 1] == 0) {  // the library does not support empty sums
    if (beta != 0) return;
    return dispatch_bits(c.dtype, [&]<class Bits>(std::type_identity<Bits>) {
      const IndexedNest<1> nest(LoopNest<1>(std::array{c}));
      for_each(c.numel(), StridedFill<Bits>{0, nest, c.as<Bits>()});
    });
  }
  fold_batch(a, b, c);
  const Readable left(*this, a), right(*this, b);
  for_parts_of_batch(left.view(), right.view(), c, [&](View x, View y, View z) {
    library_product(state_, call_, x, y, beta, z, tf32);
  });
}

void CudaExec::affine(const View& a, const View& b, const View& bias, const View& c) const {
  const Readable left(*this, a), right(*this, b);
  library_affine(state_, call_, left.view(), right.view(), bias, c, tf32_);
}

std::unique_ptr<Backend> make_cuda_backend(DeviceState& state) {
  return std::make_unique<CudaBackend>(state);
}

}  // namespace sotto
