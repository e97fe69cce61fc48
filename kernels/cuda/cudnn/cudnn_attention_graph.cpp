#include "kernels/cuda/cudnn/cudnn_attention_graph.h"

namespace sotto {

namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::int64_t max_workspace = std::int64_t{1} << 30;  // limit per plan, in bytes

Numbers row_major(const Numbers& size) {
  Numbers stride(size.size(), 1);
  for (std::size_t i = size.size() - 1; i > 0; --i) stride[i - 1] = stride[i] * size[i];
  return stride;
}

// Builds the operations in order. Tensors between two operations are virtual, in f32, or in the
// factors' type where a product reads them.
class AttentionGraph {
 public:
  AttentionGraph(const Call& call, const AttentionProblem& problem)
      : call_(call),
        p_(problem.forward),
        grad_(problem.grad),
        type_(cudnn_type(p_.q.dtype)),
        scores_{p_.samples(), p_.heads(), p_.queries(), p_.keys()},
        rows_{p_.samples(), p_.heads(), p_.queries(), 1},
        q_(given(attention_id::q, p_.q)),
        k_turned_(given(attention_id::k, turned(p_.k))),
        stats_(rows(attention_id::stats)),
        scale_(number(attention_id::scale)),
        hidden_(number(attention_id::hidden)) {}

  // y = softmax(scale q k^T + bias, masked) v; stats = max + log sum exp(scores - max).
  std::vector<Descriptor> forward() {
    const Descriptor seen = masked(biased_scores());
    const Descriptor top = rows(), sum = rows(), logarithm = rows(), low = between(),
                     high = between();
    reduce(CUDNN_REDUCE_TENSOR_MAX, seen, top);
    pointwise({CUDNN_POINTWISE_SUB}, {&seen, &top}, low);
    pointwise({CUDNN_POINTWISE_EXP}, {&low}, high);
    reduce(CUDNN_REDUCE_TENSOR_ADD, high, sum);
    pointwise({CUDNN_POINTWISE_LOG}, {&sum}, logarithm);
    pointwise({CUDNN_POINTWISE_ADD}, {&top, &logarithm}, stats_);
    const Descriptor weights = between(type_);
    pointwise({CUDNN_POINTWISE_DIV}, {&high, &sum}, weights);
    multiply(weights, given(attention_id::v, p_.v), given(attention_id::y, p_.y));
    return std::move(operations_);
  }

  // With weights w = exp(scores - stats): dv = w^T dy; the gradient of the scores s = scale w (dy
  // v^T - sum over features of dy y); dk = s^T q; dq = s k.
  std::vector<Descriptor> backward() {
    const Descriptor dy = given(attention_id::dy, grad_.dy), projection = projected(dy);
    const Descriptor scores = biased_scores(), low = between(), weights = between();
    pointwise({CUDNN_POINTWISE_SUB}, {&scores, &stats_}, low);
    const Descriptor seen = masked(low);
    pointwise({CUDNN_POINTWISE_EXP}, {&seen}, weights);
    multiply(flipped(weights), dy, given(attention_id::dv, grad_.dv));
    const Descriptor of_weights = between(), centred = between(), weighted = between(),
                     grads = between();
    multiply(dy, given(attention_id::v, turned(p_.v)), of_weights);
    pointwise({CUDNN_POINTWISE_SUB}, {&of_weights, &projection}, centred);
    pointwise({CUDNN_POINTWISE_MUL}, {&centred, &weights}, weighted);
    pointwise({CUDNN_POINTWISE_MUL}, {&weighted, &scale_}, grads);
    multiply(flipped(grads), q_, given(attention_id::dk, grad_.dk));
    const Descriptor k = tensor({.id = next_++,
                                 .dtype = type_,
                                 .size = Numbers(p_.k.size, p_.k.size + 4),
                                 .stride = Numbers(p_.k.stride, p_.k.stride + 4),
                                 .within = true});
    reshape(k_turned_, k);
    multiply(grads, k, given(attention_id::dq, grad_.dq));
    return std::move(operations_);
  }

 private:
  Descriptor tensor(const GraphTensor& t) const { return tensor_descriptor(call_, t); }
  Descriptor given(std::int64_t id, const View& v) const {
    return tensor({.id = id,
                   .dtype = cudnn_type(v.dtype),
                   .size = Numbers(v.size, v.size + v.rank),
                   .stride = Numbers(v.stride, v.stride + v.rank)});
  }
  static View turned(View v) {
    std::swap(v.size[2], v.size[3]);
    std::swap(v.stride[2], v.stride[3]);
    return v;
  }
  Descriptor number(std::int64_t id) const {
    return tensor({.id = id,
                   .dtype = CUDNN_DATA_FLOAT,
                   .size = {1, 1, 1, 1},
                   .stride = {1, 1, 1, 1},
                   .by_value = true});
  }
  Descriptor between(cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor({.id = next_++,
                   .dtype = type,
                   .size = scores_,
                   .stride = row_major(scores_),
                   .within = true});
  }
  // A number per query; virtual unless it has an id.
  Descriptor rows(std::int64_t id = -1) {
    return tensor({.id = id < 0 ? next_++ : id,
                   .dtype = CUDNN_DATA_FLOAT,
                   .size = rows_,
                   .stride = row_major(rows_),
                   .within = id < 0});
  }

  struct Pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    std::int64_t axis = -1;  // the axis of GEN_INDEX
  };
  // An operation on one, two or, for a selection, three operands.
  void pointwise(const Pointwise& how, const std::vector<const Descriptor*>& of,
                 const Descriptor& to) {
    Descriptor d(call_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    d.set(call_, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{how.mode});
    d.set(call_, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{how.type});
    if (how.axis >= 0) d.set(call_, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, Numbers{how.axis});
    d.finalize(call_);
    constexpr cudnnBackendAttributeName_t names[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                     CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                     CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    Descriptor operation(call_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(call_, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    for (std::size_t i = 0; i < of.size(); ++i) operation.set(call_, names[i], *of[i]);
    operation.set(call_, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, to);
    add(std::move(operation));
  }
  void reduce(cudnnReduceTensorOp_t how, const Descriptor& x, const Descriptor& to) {
    Descriptor d(call_, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    d.set(call_, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
          std::vector{how});
    d.set(call_, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
          std::vector{CUDNN_DATA_FLOAT});
    d.finalize(call_);
    Descriptor operation(call_, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(call_, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    operation.set(call_, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    operation.set(call_, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, to);
    add(std::move(operation));
  }
  void multiply(const Descriptor& a, const Descriptor& b, const Descriptor& to) {
    Descriptor d(call_, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    d.set(call_, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
    d.finalize(call_);
    Descriptor operation(call_, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(call_, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    operation.set(call_, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    operation.set(call_, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    operation.set(call_, CUDNN_ATTR_OPERATION_MATMUL_CDESC, to);
    add(std::move(operation));
  }
  void reshape(const Descriptor& x, const Descriptor& to) {
    Descriptor operation(call_, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(call_, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    operation.set(call_, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, to);
    add(std::move(operation));
  }
  void add(Descriptor operation) {
    operation.finalize(call_);
    operations_.push_back(std::move(operation));
  }

  // scale q k^T + bias
  Descriptor biased_scores() {
    const Descriptor product = between();
    Descriptor scores = between();
    multiply(q_, k_turned_, product);
    pointwise({CUDNN_POINTWISE_MUL}, {&product, &scale_}, scores);
    if (!p_.bias.data) return scores;
    const Descriptor bias = given(attention_id::bias, p_.bias);
    Descriptor biased = between();
    pointwise({CUDNN_POINTWISE_ADD}, {&scores, &bias}, biased);
    return biased;
  }
  // Applies the causal mask: query t attends to the keys s <= t.
  Descriptor masked(Descriptor scores) {
    if (!p_.causal) return scores;
    const Descriptor query = between(CUDNN_DATA_INT32), key = between(CUDNN_DATA_INT32),
                     in_time = between(CUDNN_DATA_BOOLEAN);
    Descriptor seen = between();
    pointwise({CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2}, {&scores}, query);
    pointwise({CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3}, {&scores}, key);
    pointwise({CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN}, {&query, &key}, in_time);
    pointwise({CUDNN_POINTWISE_BINARY_SELECT}, {&scores, &hidden_, &in_time}, seen);
    return seen;
  }
  // The transpose [keys, queries] of x, as a factor of a product.
  Descriptor flipped(const Descriptor& x) {
    const std::int64_t a = p_.queries(), b = p_.keys();
    Descriptor y = tensor({.id = next_++,
                           .dtype = type_,
                           .size = {p_.samples(), p_.heads(), b, a},
                           .stride = {p_.heads() * a * b, a * b, 1, b},
                           .within = true});
    reshape(x, y);
    return y;
  }
  // For each query, the sum over features of dy y. The pattern that cuDNN recognizes multiplies it
  // by a number.
  Descriptor projected(const Descriptor& dy) {
    const Descriptor y = given(attention_id::y, p_.y), one = number(attention_id::one),
                     sum = rows();
    const std::int64_t a = p_.queries(), e = p_.v.size[3], h = p_.heads();
    const Descriptor products = tensor({.id = next_++,
                                        .dtype = CUDNN_DATA_FLOAT,
                                        .size = {p_.samples(), h, a, e},
                                        .stride = {h * a * e, a * e, e, 1},
                                        .within = true});
    Descriptor projection = rows(attention_id::projection);
    pointwise({CUDNN_POINTWISE_MUL}, {&dy, &y}, products);
    reduce(CUDNN_REDUCE_TENSOR_ADD, products, sum);
    pointwise({CUDNN_POINTWISE_MUL}, {&sum, &one}, projection);
    return projection;
  }

  const Call& call_;
  const FusedAttention& p_;
  const FusedAttentionGrad& grad_;
  cudnnDataType_t type_;
  Numbers scores_, rows_;
  std::int64_t next_ = attention_id::others;
  std::vector<Descriptor> operations_;
  Descriptor q_, k_turned_, stats_, scale_, hidden_;
};

}  // namespace

std::vector<Descriptor> attention_plans(const Call& call, const PlanTarget& target,
                                        const AttentionProblem& problem, std::size_t max) {
  AttentionGraph graph(call, problem);
  const std::vector<Descriptor> operations = problem.backward ? graph.backward() : graph.forward();
  const auto allowed = [](const EngineNotes& notes) {
    return !noted(notes, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
           !noted(notes, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
           !noted(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  };
  return find_plans(call, target, operations, allowed, max, max_workspace);
}

}  // namespace sotto
