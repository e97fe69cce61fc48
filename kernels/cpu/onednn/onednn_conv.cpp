#include "kernels/cpu/onednn/onednn_conv.h"

#include <map>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/threads/parallel.h"

namespace sotto {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;
constexpr auto f32 = memory::data_type::f32;

// Limit of the cache of primitives: a network has some tens of shapes. If it is exceeded, shapes do
// not recur and the cache is cleared.
constexpr std::size_t kept = 1024;

// A convolution in oneDNN's types. Images are 2-D if the depth is 1 throughout.
struct Words {
  Words(const Geometry& g, Dtype dtype);

  memory::data_type type;
  bool flat;
  memory::dims x, y, w;
  memory::dims stride, dilation, before, after;
  // Winograd primitives choose their own order of images.
  memory::desc images(const memory::dims& dims, Algorithm algorithm = Algorithm::direct) const {
    const Tag channels_last = flat ? Tag::nhwc : Tag::ndhwc;
    return {dims, type, algorithm == Algorithm::winograd ? Tag::any : channels_last};
  }
  memory::desc plain() const {
    constexpr Tag tags[] = {Tag::abcd, Tag::abcde, Tag::abcdef};
    return {w, type, tags[w.size() - 4]};
  }
  memory::desc any_weights() const { return {w, type, Tag::any}; }
};

Words::Words(const Geometry& g, Dtype dtype)
    : type(dtype == Dtype::bf16 ? memory::data_type::bf16 : f32),
      x{g.samples, g.channels},
      y{g.samples, g.outputs} {
  const Window& window = g.window;
  flat = g.in[0] == 1 && g.out[0] == 1 && window.kernel[0] == 1 && window.before[0] == 0;
  if (window.groups > 1) w.push_back(window.groups);
  w.push_back(g.group_outputs());
  w.push_back(g.group_channels());
  for (int axis = flat ? 1 : 0; axis < 3; ++axis) {
    x.push_back(g.in[axis]);
    y.push_back(g.out[axis]);
    w.push_back(window.kernel[axis]);
    stride.push_back(window.stride[axis]);
    dilation.push_back(window.dilation[axis] - 1);
    before.push_back(window.before[axis]);
    after.push_back(window.after[axis]);
  }
}

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;
constexpr auto direct = dnnl::algorithm::convolution_direct;

dnnl::algorithm name_of(Algorithm algorithm) {
  return algorithm == Algorithm::winograd ? dnnl::algorithm::convolution_winograd : direct;
}

Forward::primitive_desc describe_forward(const Words& c, const memory::desc& bias,
                                         Algorithm algorithm = Algorithm::direct) {
  dnnl::primitive_attr own_scratchpad;
  own_scratchpad.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const Forward::desc wanted(dnnl::prop_kind::forward_training, name_of(algorithm),
                             c.images(c.x, algorithm), c.any_weights(), bias,
                             c.images(c.y, algorithm), c.stride, c.dilation, c.before, c.after);
  return {wanted, own_scratchpad, onednn_engine()};
}

BackwardData::primitive_desc describe_data(const Words& c) {
  dnnl::primitive_attr own_scratchpad;
  own_scratchpad.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const BackwardData::desc wanted(direct, c.images(c.x), c.any_weights(), c.images(c.y), c.stride,
                                  c.dilation, c.before, c.after);
  return {wanted, own_scratchpad, onednn_engine(), describe_forward(c, {})};
}

BackwardWeights::primitive_desc describe_weight(const Words& c, Algorithm algorithm) {
  dnnl::primitive_attr own_scratchpad;
  own_scratchpad.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const BackwardWeights::desc wanted(name_of(algorithm), c.images(c.x, algorithm), c.any_weights(),
                                     c.images(c.y, algorithm), c.stride, c.dilation, c.before,
                                     c.after);
  return {wanted, own_scratchpad, onednn_engine(), describe_forward(c, {}, algorithm)};
}

bool made_by(const dnnl::primitive_desc_base& p, std::string_view name) {
  return std::string_view(p.impl_info_str()).find(name) != std::string_view::npos;
}

// Prepares the reordering of images for a primitive that has its own order.
void keep_order(const memory::desc& x, const memory::desc& y, ConvPrimitive& p) {
  const dnnl::engine& e = onednn_engine();
  p.own_x = x;
  p.own_y = y;
  p.order_x = dnnl::reorder({e, p.x, e, x});
  p.order_y =
      p.pass == Pass::forward ? dnnl::reorder({e, y, e, p.y}) : dnnl::reorder({e, p.y, e, y});
}

// Stores a primitive. Returns false if it is oneDNN's reference implementation, a plain loop that
// is slower than im2col by orders of magnitude.
bool keep(const dnnl::primitive_desc_base& described, const memory::desc& weights,
          dnnl::primitive primitive, ConvPrimitive& p) {
  p.weights = weights;
  p.scratchpad = described.scratchpad_desc();
  p.primitive = std::move(primitive);
  p.brgemm = made_by(described, "brg");
  return !made_by(described, "ref");
}

bool describe(const Words& c, Algorithm algorithm, ConvPrimitive& p) {
  const bool tiles = algorithm == Algorithm::winograd;
  if (p.pass == Pass::forward) {
    const auto described = describe_forward(c, p.bias, algorithm);
    if (tiles) keep_order(described.src_desc(), described.dst_desc(), p);
    return keep(described, described.weights_desc(), Forward(described), p);
  }
  if (p.pass == Pass::data) {
    const auto described = describe_data(c);
    return keep(described, described.weights_desc(), BackwardData(described), p);
  }
  const auto described = describe_weight(c, algorithm);
  if (tiles) keep_order(described.src_desc(), described.diff_dst_desc(), p);
  return keep(described, described.diff_weights_desc(), BackwardWeights(described), p);
}

// True for windows of one pixel that move by several: oneDNN 2.6 copies their pixels by whole
// vectors of channels, in AVX2 past the image's end where channels do not fill the last one.
bool overruns(const Geometry& g) {
  constexpr std::int64_t lanes = 16;
  bool moves = false;
  for (int axis = 0; axis < 3; ++axis) {
    if (g.window.kernel[axis] != 1) return false;
    moves = moves || g.window.stride[axis] > 1;
  }
  return moves && g.channels / g.window.groups % lanes != 0;
}

std::shared_ptr<const ConvPrimitive> make(Pass pass, const Geometry& g, bool with_bias, Dtype dtype,
                                          Algorithm algorithm) {
  const Words c(g, dtype);
  ConvPrimitive p;
  p.pass = pass;
  p.x = c.images(c.x);
  p.y = c.images(c.y);
  p.plain = c.plain();
  if (with_bias) p.bias = memory::desc({g.outputs}, f32, Tag::a);
  if (overruns(g) || !describe(c, algorithm, p)) return nullptr;
  const bool to_plain = pass == Pass::weight;
  p.reorder = dnnl::reorder({onednn_engine(), to_plain ? p.weights : p.plain, onednn_engine(),
                             to_plain ? p.plain : p.weights});
  return std::make_shared<const ConvPrimitive>(std::move(p));
}

std::vector<std::int64_t> key_of(Pass pass, const Geometry& g, bool bias, Dtype dtype,
                                 Algorithm algorithm) {
  std::vector<std::int64_t> key{static_cast<std::int64_t>(pass),
                                static_cast<std::int64_t>(dtype),
                                static_cast<std::int64_t>(algorithm),
                                bias,
                                g.samples,
                                g.channels,
                                g.outputs,
                                g.window.groups};
  for (int axis = 0; axis < 3; ++axis) {
    key.insert(key.end(), {g.in[axis], g.out[axis], g.window.kernel[axis], g.window.stride[axis],
                           g.window.before[axis], g.window.after[axis], g.window.dilation[axis]});
  }
  return key;
}

}  // namespace

const dnnl::engine& onednn_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

bool has_bf16_instructions() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

std::shared_ptr<const ConvPrimitive> conv_primitive(Pass pass, const Geometry& g, bool bias,
                                                    Dtype dtype, Algorithm algorithm) {
  static std::mutex mutex;
  static std::map<std::vector<std::int64_t>, std::shared_ptr<const ConvPrimitive>> primitives;
  const std::vector<std::int64_t> key = key_of(pass, g, bias, dtype, algorithm);
  const std::lock_guard lock(mutex);
  if (const auto found = primitives.find(key); found != primitives.end()) return found->second;
  std::shared_ptr<const ConvPrimitive> made;
  try {
    const OneThread one;
    made = make(pass, g, bias, dtype, algorithm);
  } catch (const dnnl::error&) {
    // oneDNN has no primitive for this shape; nullptr records that.
  }
  if (primitives.size() >= kept) primitives.clear();
  return primitives[key] = made;
}

// The memories that a primitive's arguments are, and their addresses' owners.
struct ConvRun::State {
  explicit State(const ConvPrimitive& primitive);

  const ConvPrimitive& p;
  dnnl::stream stream;
  Storage scratch, own;
  memory x, y, weights, bias, own_x, own_y;
  std::unordered_map<int, memory> arguments;
};

ConvRun::State::State(const ConvPrimitive& primitive)
    : p(primitive),
      stream(onednn_engine()),
      scratch(p.scratchpad.get_size(), cpu),
      own(p.own_x.get_size() + p.own_y.get_size(), cpu),
      x(p.x, onednn_engine(), nullptr),
      y(p.y, onednn_engine(), nullptr),
      weights(p.weights, onednn_engine(), nullptr) {
  const bool forward = p.pass == Pass::forward, ordered = p.own_x.get_size() > 0;
  if (ordered) {
    own_x = memory(p.own_x, onednn_engine(), own.data());
    own_y = memory(p.own_y, onednn_engine(), static_cast<char*>(own.data()) + p.own_x.get_size());
  }
  arguments = {{p.pass == Pass::data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, ordered ? own_x : x},
               {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, ordered ? own_y : y},
               {p.pass == Pass::weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, weights},
               {DNNL_ARG_SCRATCHPAD, memory(p.scratchpad, onednn_engine(), scratch.data())}};
  if (forward && p.bias.get_size() > 0) {
    bias = memory(p.bias, onednn_engine(), nullptr);
    arguments.insert({DNNL_ARG_BIAS, bias});
  }
}

ConvRun::ConvRun(const ConvPrimitive& p) : state_(std::make_unique<State>(p)) {}

ConvRun::~ConvRun() = default;

void ConvRun::operator()(void* x, void* y, void* weights, const float* bias) {
  State& s = *state_;
  s.x.set_data_handle(x);
  s.y.set_data_handle(y);
  s.weights.set_data_handle(weights);
  if (bias) s.bias.set_data_handle(const_cast<float*>(bias));
  const auto order = [&](const dnnl::primitive& reorder, memory& from, memory& to) {
    if (reorder) reorder.execute(s.stream, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
  };
  const bool forward = s.p.pass == Pass::forward;
  order(s.p.order_x, s.x, s.own_x);
  if (!forward) order(s.p.order_y, s.y, s.own_y);
  s.p.primitive.execute(s.stream, s.arguments);
  if (forward) order(s.p.order_y, s.own_y, s.y);
}

struct Reorder::State {
  const ConvPrimitive& p;
  dnnl::stream stream;
  memory from, to;
  std::unordered_map<int, memory> arguments;
};

Reorder::Reorder(const ConvPrimitive& p)
    : state_(new State{
          .p = p,
          .stream = dnnl::stream(onednn_engine()),
          .from = memory(p.pass == Pass::weight ? p.weights : p.plain, onednn_engine(), nullptr),
          .to = memory(p.pass == Pass::weight ? p.plain : p.weights, onednn_engine(), nullptr)}) {
  state_->arguments = {{DNNL_ARG_FROM, state_->from}, {DNNL_ARG_TO, state_->to}};
}

Reorder::~Reorder() = default;

void Reorder::operator()(void* from, void* to) {
  state_->from.set_data_handle(from);
  state_->to.set_data_handle(to);
  state_->p.reorder.execute(state_->stream, state_->arguments);
}

}  // namespace sotto
