#include "tests/fake_gpu/host_executor.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <set>
#include <typeinfo>
#include <vector>

#include "core/error.h"
#include "kernels/cuda/clip_terms.h"
#include "kernels/cuda/conv.h"
#include "kernels/cuda/copy_all.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/cuda_attention.h"
#include "kernels/cuda/cuda_elementwise.h"
#include "kernels/cuda/cuda_lstm.h"
#include "kernels/cuda/cuda_normalization.h"
#include "kernels/cuda/cuda_per_sample.h"
#include "kernels/cuda/index.h"
#include "kernels/cuda/noisy_update.h"
#include "kernels/cuda/pool.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/rounded_product.h"
#include "kernels/cuda/rowwise.h"
#include "kernels/cuda/runtime/gpu_costs.h"
#include "kernels/cuda/unary.h"
#include "kernels/host_device/fold_batch.h"
#include "kernels/tf32.h"
#include "tests/fake_gpu/host_block.h"
#include "tests/fake_gpu/host_team.h"
#include "tests/fake_gpu/shared_workspace.h"
#include "tests/fake_gpu/tf32_factor.h"
#include "tests/support/host_attention.h"

namespace sotto {

namespace {

// The device's library, implemented by the CPU: convolutions with a fixed order of summation.
class HostConvPlan final : public ConvPlan {
 public:
  HostConvPlan(Backend& engine, const ConvProblem& problem) : engine_(engine), problem_(problem) {}
  void run(void* x, void* w, void* y) const override {
    ConvProblem p = problem_;
    p.x.data = x;
    p.w.data = w;
    p.y.data = y;
    const auto factor = [&](const View& v) { return Tf32Factor(engine_, v, p.tf32); };
    switch (p.pass) {
      case ConvPass::forward:
        return engine_.conv(factor(p.x).view(), factor(p.w).view(), {}, p.window, p.y);
      case ConvPass::data:
        return engine_.conv_data(factor(p.y).view(), factor(p.w).view(), p.window, p.x);
      // The library's weight gradients are row-major.
      case ConvPass::weight: return weight(p);
    }
  }

 private:
  void weight(const ConvProblem& p) const {
    std::vector<char> bytes(static_cast<std::size_t>(bytes_of(p.w.dtype, p.w.numel())));
    View row_major = in_order(p.w, false);
    row_major.data = bytes.data();
    engine_.conv_weight(p.y, p.x, p.window, 0, row_major);
    engine_.copy(row_major, p.w);
  }

  Backend& engine_;
  ConvProblem problem_;
};

double bytes_of(const View& x) {
  double elements = x.data ? 1 : 0;
  for (int axis = 0; axis < x.rank; ++axis) {
    if (x.stride[axis] != 0) elements *= static_cast<double>(x.size[axis]);
  }
  return elements * static_cast<double>(size_of(x.dtype));
}

// Adds to what the primitive at hand asks for.
void record(double bytes, double flops, Dtype dtype) {
  if (!dry()) return;
  PrimitiveWork& work = recorded_work().back();
  work.bytes += bytes;
  work.flops += flops;
  if (flops > 0) work.narrow = size_of(dtype) == 2;
}

// The addresses of the views that the primitive at hand has.
std::set<const void*>& viewed() {
  thread_local std::set<const void*> addresses;
  return addresses;
}

// Records what a product on scratch reads besides those views, and its result, which is read again.
void record_scratch(const View& a, const View& b, const View& c) {
  if (!dry()) return;
  for (const View* x : {&a, &b}) {
    if (viewed().insert(x->data).second) record(bytes_of(*x), 0, x->dtype);
  }
  record(2 * bytes_of(c), 0, c.dtype);
}

void record_product(const View& a, const View& c) {
  record(0, 2 * static_cast<double>(c.numel() * a.size[a.rank - 1]), a.dtype);
}

// Counts work as a launch and does it, or hands it on.
void launch(const OnLaunch& on_launch, const char* kernel, std::function<void()> work,
            Asked asked = Asked::launch) {
  if (dry() && asked == Asked::launch) recorded_work().back().kernels.push_back(kernel);
  if (on_launch) return on_launch(std::move(work), asked);
  if (asked == Asked::launch) count_launch(cpu);
  work();
}

// A plan whose runs count as launches.
class LaunchedPlan final : public ConvPlan {
 public:
  LaunchedPlan(Backend& engine, const ConvProblem& problem, const OnLaunch& on_launch)
      : problem_(problem),
        plan_(std::make_shared<HostConvPlan>(engine, problem)),
        on_launch_(on_launch) {}
  void run(void* x, void* w, void* y) const override {
    const View& weight = problem_.w;
    const double taps = static_cast<double>(weight.numel() / weight.size[0]);
    record(0, 2 * taps * static_cast<double>(problem_.y.numel()), problem_.x.dtype);
    launch(on_launch_, "convolution", [plan = plan_, x, w, y] { plan->run(x, w, y); });
  }

 private:
  ConvProblem problem_;
  std::shared_ptr<const ConvPlan> plan_;
  const OnLaunch& on_launch_;
};

class LaunchedAttention final : public AttentionPlan {
 public:
  explicit LaunchedAttention(const OnLaunch& on_launch) : on_launch_(on_launch) {}
  void run(const AttentionProblem& problem) const override {
    // Two products forwards, and five back.
    const FusedAttention& a = problem.forward;
    const double product = 2 * static_cast<double>(a.q.numel() * a.keys());
    record(0, (problem.backward ? 5 : 2) * product / (a.causal ? 2 : 1), a.q.dtype);
    launch(on_launch_, "attention", [problem] { HostAttentionPlan().run(problem); });
  }

 private:
  const OnLaunch& on_launch_;
};

class HostExec {
 public:
  HostExec(Device device, Backend& products, SharedWorkspace& workspace,
           std::shared_ptr<void> guard, const OnLaunch& on_launch, bool tf32)
      : device_(device),
        products_(products),
        workspace_(workspace),
        guard_(std::move(guard)),
        on_launch_(on_launch),
        tf32_(tf32),
        attention_(on_launch) {}
  template <class F>
  void for_each(std::int64_t count, const F& f) const {
    launch(typeid(F).name(), [f, count] { run_each(count, f); });
  }
  template <class F>
  void for_each_team(std::int64_t count, std::int64_t, const F& f) const {
    launch(typeid(F).name(), [f, count] { run_team(count, f); });
  }
  template <class F>
  void for_each_tile(std::int64_t count, const F& f) const {
    const double samples = static_cast<double>(f.samples) * static_cast<double>(f.positions);
    record(0, 2 * samples * static_cast<double>(f.b.columns) * static_cast<double>(f.a.columns),
           dtype_of<std::remove_cv_t<std::remove_pointer_t<decltype(f.a.data)>>>());
    launch(typeid(F).name(), [f, count] {
      const auto shared = std::make_unique<typename F::Shared>();
      if (skips_tiles()) return;
      run_each(count, [&](std::int64_t i) { f(HostBlock<F::threads>(), *shared, i); });
    });
  }
  static bool has_matrix_units() { return true; }
  void copy(const void* from, void* to, std::size_t bytes) const {
    launch("copy", [=] { std::memcpy(to, from, bytes); });
  }
  void bring(const void* from, void* to, std::size_t bytes) const {
    if (!on_launch_) {
      std::memcpy(to, from, bytes);
      return;
    }
    const auto* const first = static_cast<const std::byte*>(from);
    on_launch_([to, copy = std::vector(
                        first, first + bytes)] { std::memcpy(to, copy.data(), copy.size()); },
               Asked::bytes);
  }
  // Products inside of primitives have full precision, because norms are computed from them.
  void gemm(const View& a, const View& b, double beta, const View& c) const {
    record_scratch(a, b, c);
    product(a, b, beta, c, false);
  }
  void product(const View& a, const View& b, double beta, const View& c, bool tf32) const {
    record_product(a, c);
    for_parts_of_batch(a, b, c, [&](View x, View y, View z) {
      launch_product(z, [=, products = &products_](const View& to) {
        products->gemm(Tf32Factor(*products, x, tf32).view(), Tf32Factor(*products, y, tf32).view(),
                       beta, to);
      });
    });
  }
  void affine(const View& a, const View& b, const View& bias, const View& c) const {
    record_product(a, c);
    launch_product(c, [=, products = &products_, tf32 = tf32_](const View& to) {
      products->affine(Tf32Factor(*products, a, tf32).view(), Tf32Factor(*products, b, tf32).view(),
                       bias, to);
    });
  }
  // Small, so that work is split into chunks, or a GPU's.
  static std::int64_t scratch_bytes() { return dry() ? 1 << 28 : 1 << 12; }
  Device device() const { return device_; }
  // A library with gaps: an even number of samples has no plan (im2col is tested), and images with
  // fewer bits than the weight gradient have one only for 4 k + 1 samples.
  const ConvPlan* conv_plan(const ConvProblem& problem) const {
    const std::int64_t samples = problem.x.size[0];
    if (dry() && problem.x.dtype == Dtype::f64) return nullptr;
    if (!dry() && (samples % 2 == 0 || (problem.x.dtype != problem.w.dtype && samples % 4 == 3)))
      return nullptr;
    plans_.push_back(std::make_unique<LaunchedPlan>(products_, problem, on_launch_));
    return plans_.back().get();
  }
  // Attention has gaps, too: 24 features have no plan, 40 have a forward plan only.
  const AttentionPlan* attention_plan(const AttentionProblem& problem) const {
    const std::int64_t features = problem.forward.q.size[3];
    return !dry() && (features == 24 || (features == 40 && problem.backward)) ? nullptr
                                                                              : &attention_;
  }
  bool tf32() const { return tf32_; }

 private:
  // As on a GPU, a launch copies its arguments.
  void launch(const char* kernel, std::function<void()> work) const {
    sotto::launch(on_launch_, kernel, std::move(work));
  }
  void launch_product(const View& y, const std::function<void(const View& y)>& f) const {
    workspace_.product(products_, y, f, [this](std::function<void()> work, Asked asked) {
      sotto::launch(on_launch_, "product", std::move(work), asked);
    });
  }

  Device device_;
  Backend& products_;
  SharedWorkspace& workspace_;
  std::shared_ptr<void> guard_;
  const OnLaunch& on_launch_;
  bool tf32_;
  LaunchedAttention attention_;
  mutable std::vector<std::unique_ptr<LaunchedPlan>> plans_;
};

class HostBackend final : public DeviceBackend<HostExec> {
 public:
  HostBackend(Device device, Backend& products, OnCall on_call, OnLaunch on_launch)
      : device_(device),
        products_(products),
        on_call_(std::move(on_call)),
        on_launch_(std::move(on_launch)) {}
  std::string name() const override { return "device code on the host"; }
  CostModel costs(Dtype factors) const override {
    if (dry()) return gpu_costs(factors);
    CostModel costs = products_.costs(Dtype::f32);
    costs.shifted_adds = 0;  // no ghost norms by products of pixels
    return costs;
  }
  void gemm(View a, View b, double beta, View c) override {
    const HostExec exec = execution("gemm", {&a, &b, &c});
    exec.product(a, b, beta, c, exec.tf32());
  }
  void affine(View a, View b, View bias, View c) override {
    execution("affine", {&a, &b, &bias, &c}).affine(a, b, bias, c);
  }
  void mark_nonfinite(std::span<const View> arrays, View y) override {
    with_views({arrays.begin(), arrays.end()}, [&] { DeviceBackend::mark_nonfinite(arrays, y); });
  }
  void zero_all(std::span<const View> arrays) override {
    with_views({arrays.begin(), arrays.end()}, [&] { DeviceBackend::zero_all(arrays); });
  }
  void copy_all(std::span<const ArrayCopy> all, bool add) override {
    with_views(views_of(all, &ArrayCopy::x, &ArrayCopy::y),
               [&] { DeviceBackend::copy_all(all, add); });
  }
  void term_bounds(std::span<const BoundedTerms> all) override {
    using T = BoundedTerms;
    with_views(views_of(all, &T::a, &T::b, &T::error_bounds, &T::term_norms, &T::lost),
               [&] { DeviceBackend::term_bounds(all); });
  }
  void squared_row_norms(std::span<const RowNorms> all) override {
    with_views(views_of(all, &RowNorms::x, &RowNorms::y),
               [&] { DeviceBackend::squared_row_norms(all); });
  }
  void add_all_rounded(std::span<const RoundedRows> all, View w) override {
    with_views(views_of(all, &RoundedRows::x, &RoundedRows::y),
               [&] { DeviceBackend::add_all_rounded(all, w); });
  }
  void update(std::span<const UpdateArray> arrays, View faults) override {
    DeviceBackend::update(arrays, faults);
    for (const UpdateArray& array : arrays) {
      const double element = static_cast<double>(size_of(array.dtype));
      const double numbers = 3 + 2 * count_states(array), noise = array.noise ? 8 : 0;
      record(static_cast<double>(array.count) * (element * numbers + noise), 0, array.dtype);
    }
  }

 protected:
  HostExec execution(const char* name, Views views) override {
    if (dry()) {
      recorded_work().push_back({.name = name});
      viewed().clear();
      for (const View* view : views) viewed().insert(view->data);
      for (auto view = views.begin(); view != views.end(); ++view) {
        if (!read_before(views, view)) record(bytes_of(**view), 0, (*view)->dtype);
        if (together_) counted_.insert((*view)->data);
      }
    }
    return HostExec(device_, products_, workspace_, on_call_ ? on_call_(views) : nullptr,
                    on_launch_, tf32_ && !NoTf32Scope::wanted());
  }

 private:
  // True for an operand that is an earlier one, as in row_dot(x, x, y). The last view is written.
  static bool read_before(Views views, Views::const_iterator operand) {
    return operand + 1 != views.end() && std::any_of(views.begin(), operand, [&](const View* x) {
             return x->data == (*operand)->data && x->numel() == (*operand)->numel() &&
                    x->dtype == (*operand)->dtype;
           });
  }
  template <class T, class... Members>
  static std::vector<View> views_of(std::span<const T> all, Members... members) {
    std::vector<View> views;
    for (const T& one : all) (views.push_back(one.*members), ...);
    return views;
  }
  // Does with the views of a primitive what execution() does.
  template <class Call>
  void with_views(const std::vector<View>& views, const Call& call) {
    for (const View& view : views) {
      if (on_call_) on_call_({&view});
    }
    together_ = true;
    call();
    for (const View& view : views) {
      if (!counted_.contains(view.data)) record(bytes_of(view), 0, view.dtype);
    }
    together_ = false;
    counted_.clear();
  }

  Device device_;
  Backend& products_;
  SharedWorkspace workspace_;
  OnCall on_call_;
  OnLaunch on_launch_;
  bool tf32_ = tf32_used();
  // In dry runs: the views that were recorded of a call for several arrays together.
  std::set<const void*> counted_;
  bool together_ = false;
};

}  // namespace

std::unique_ptr<Backend> make_device_code(Device device, Backend& products, OnCall on_call,
                                          OnLaunch on_launch) {
  return std::make_unique<HostBackend>(device, products, std::move(on_call), std::move(on_launch));
}

DeviceCodeOnHost::DeviceCodeOnHost()
    : engine_(backend(cpu)), device_code_(make_device_code(cpu, engine_)) {
  set_cpu_backend(*device_code_);
}

DeviceCodeOnHost::~DeviceCodeOnHost() { set_cpu_backend(engine_); }

}  // namespace sotto
