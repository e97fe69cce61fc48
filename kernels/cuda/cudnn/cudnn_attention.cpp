#include "kernels/cuda/cudnn/cudnn_attention.h"

#include <limits>

#include "kernels/cuda/cudnn/cudnn_attention_graph.h"
#include "kernels/cuda/runtime/scratch.h"

namespace sotto {

namespace {

using Numbers = std::vector<std::int64_t>;

Numbers key_of(const DeviceState& state, const AttentionProblem& p) {
  Numbers key{state.device().index, p.backward, p.forward.causal};
  for_each_view(p, [&key](const View& view) { append_form(key, view); });
  return key;
}

Call call_of(const DeviceState& state, const AttentionProblem& p) {
  const FusedAttention& f = p.forward;
  return Call(p.backward ? "attention_grad" : "attention", state.device(), {&f.q, &f.k, &f.v});
}

class LibraryAttention final : public AttentionPlan {
 public:
  LibraryAttention(DeviceState& state, const Call& call, Descriptor plan)
      : state_(state), plan_(state, call, std::move(plan)) {}
  void run(const AttentionProblem& p) const override {
    const std::lock_guard lock(cudnn_mutex());
    const FusedAttention& f = p.forward;
    auto scale = static_cast<float>(f.scale), one = 1.0f;
    float hidden = std::numeric_limits<float>::lowest();
    namespace id = attention_id;
    Numbers ids{id::q, id::k, id::v, id::y, id::stats, id::scale};
    std::vector<void*> data{f.q.data, f.k.data, f.v.data, f.y.data, f.stats.data, &scale};
    const auto add = [&](std::int64_t name, void* at) {
      ids.push_back(name);
      data.push_back(at);
    };
    if (f.bias.data) add(id::bias, f.bias.data);
    if (f.causal) add(id::hidden, &hidden);
    const Scratch<float> projection(state_.device(), p.backward ? f.stats.numel() : 1);
    if (p.backward) {
      add(id::dy, p.grad.dy.data);
      add(id::dq, p.grad.dq.data);
      add(id::dk, p.grad.dk.data);
      add(id::dv, p.grad.dv.data);
      add(id::projection, projection.data());
      add(id::one, &one);
    }
    plan_.run(call_of(state_, p), ids, data);
  }

 private:
  DeviceState& state_;
  LibraryPlan plan_;
};

// True if the backward sums over keys in a fixed order (cudnn_attention_graph.h). Only for compute
// capability 9 this is documented; two backward passes must compute equal gradients.
bool sums_in_order(const DeviceState& state, const Call& call) {
  state.use();
  int device = 0, major = 0;
  cuda_check(call, "cudaGetDevice", cudaGetDevice(&device));
  cuda_check(call, "cudaDeviceGetAttribute",
             cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major == 9;
}

std::unique_ptr<LibraryAttention> find_plan(DeviceState& state, const Call& call,
                                            const AttentionProblem& p) {
  if (p.backward && !sums_in_order(state, call)) return nullptr;
  std::vector<Descriptor> plans = attention_plans(call, PlanTarget(state, call), p, 1);
  if (plans.empty()) return nullptr;
  return std::make_unique<LibraryAttention>(state, call, std::move(plans[0]));
}

}  // namespace

const AttentionPlan* attention_plan(DeviceState& state, const AttentionProblem& problem) {
  bool aligned = true;
  for_each_view(problem, [&](const View& view) { aligned = aligned && library_aligned(view); });
  if (!aligned) return nullptr;
  const Call call = call_of(state, problem);
  const std::lock_guard lock(cudnn_mutex());
  return kept_plan<LibraryAttention>(key_of(state, problem), [&] {
    return plan_or_none(call, [&] { return find_plan(state, call, problem); });
  });
}

}  // namespace sotto
