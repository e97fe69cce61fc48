#include "kernels/cuda/cublas_gemm.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <cublasLt.h>

#include "kernels/cuda/runtime/library_room.h"

namespace sotto {

namespace {

template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const {
    destroy(handle);
  }
};
using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroy<cublasLtMatrixLayoutDestroy>>;
using Description = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroy<cublasLtMatmulPreferenceDestroy>>;

void cublas_check(const Call& call, const char* function, cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    device_failed(call, function, cublasLtGetStatusString(status));
}

cudaDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64: return CUDA_R_64F;
    case Dtype::f32: return CUDA_R_32F;
    case Dtype::f16: return CUDA_R_16F;
    default: return CUDA_R_16BF;
  }
}

// A view in cuBLASLt's terms. The library is column-major: a row-major matrix is passed as its
// transpose.
struct Stored {
  std::int64_t rows, cols;  // in the library's column-major terms
  std::int64_t leading;     // distance between columns
  bool transposed;  // true: the view itself is stored by columns, so the library transposes it
  std::int64_t batch, batch_stride;

  auto operator<=>(const Stored&) const = default;
};

struct LastAxes {
  std::int64_t rows, cols, row_stride, col_stride;
  explicit LastAxes(const View& x)
      : rows(x.size[x.rank - 2]),
        cols(x.size[x.rank - 1]),
        row_stride(x.stride[x.rank - 2]),
        col_stride(x.stride[x.rank - 1]) {}
  bool by_rows() const {
    return (col_stride == 1 || cols == 1) && (row_stride >= cols || rows == 1);
  }
  bool by_columns() const {
    return (row_stride == 1 || rows == 1) && (col_stride >= rows || cols == 1);
  }
};

Stored stored(const View& x) {
  const LastAxes m(x);
  const bool rows_first = m.by_rows();
  Stored y{};
  y.rows = rows_first ? m.cols : m.rows;
  y.cols = rows_first ? m.rows : m.cols;
  y.leading = std::max(rows_first ? m.row_stride : m.col_stride, y.rows);
  y.transposed = !rows_first;
  y.batch = x.rank == 3 ? x.size[0] : 1;
  y.batch_stride = x.rank == 3 ? x.stride[0] : 0;
  return y;
}

// The key by which an algorithm is chosen; alignments in bytes.
struct Problem {
  Stored a, b, c;
  cudaDataType_t factor_type, sum_type;
  cublasComputeType_t compute;
  bool biased;
  std::uint32_t a_alignment, b_alignment, c_alignment;

  auto operator<=>(const Problem&) const = default;
};

std::uint32_t alignment_of(const View& x) {
  constexpr std::uintptr_t max = 256;
  const auto step = x.rank == 3 && x.size[0] > 1
                        ? static_cast<std::uintptr_t>(x.stride[0]) * size_of(x.dtype)
                        : 0;
  const auto bits = reinterpret_cast<std::uintptr_t>(x.data) | step | max;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

class Matmul {
 public:
  // `bias` may be nullptr.
  Matmul(const Call& call, const Problem& problem, const void* bias)
      : call_(call),
        description_(describe(problem)),
        a_(layout(problem.a, problem.factor_type)),
        b_(layout(problem.b, problem.factor_type)),
        c_(layout(problem.c, problem.sum_type)) {
    if (!bias) return;
    set(description_.get(), CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(description_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

  cublasLtMatmulAlgo_t choose(DeviceState& state, const Problem& problem) const {
    cublasLtMatmulPreference_t raw = nullptr;
    cublas_check(call_, "cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&raw));
    const Preference preference(raw);
    const std::size_t max = DeviceState::workspace_bytes;
    prefer(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, max);
    // Partial sums must not be accumulated in a 16-bit result.
    prefer(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    // The library's A is our b, and its B our a, because of the transposition.
    prefer(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.b_alignment);
    prefer(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.a_alignment);
    prefer(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.c_alignment);
    prefer(raw, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.c_alignment);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const ForgetErrors forget;
    cublas_check(
        call_, "cublasLtMatmulAlgoGetHeuristic",
        cublasLtMatmulAlgoGetHeuristic(state.cublas(), description_.get(), b_.get(), a_.get(),
                                       c_.get(), c_.get(), raw, 1, &found, &count));
    if (count == 0) device_failed(call_, "cublasLtMatmulAlgoGetHeuristic", "no algorithm");
    return found.algo;
  }

  template <class Scalar>
  void run(DeviceState& state, const cublasLtMatmulAlgo_t& algorithm, const View& a, const View& b,
           double beta, const View& c) const {
    const Scalar one = 1, old = static_cast<Scalar>(beta);
    const auto enqueue = [&](void* workspace) {
      const ForgetErrors forget;
      return cublasLtMatmul(state.cublas(), description_.get(), &one, b.data, b_.get(), a.data,
                            a_.get(), &old, c.data, c_.get(), c.data, c_.get(), &algorithm,
                            workspace, DeviceState::workspace_bytes, state.stream());
    };
    const auto failed = [](cublasStatus_t status) {
      return status == CUBLAS_STATUS_EXECUTION_FAILED || status == CUBLAS_STATUS_INTERNAL_ERROR;
    };
    cublas_check(call_, "cublasLtMatmul",
                 library_with_room(call_.device, CUBLAS_STATUS_ALLOC_FAILED, failed,
                                   [&] { return state.workspace().use(enqueue); }));
  }

 private:
  template <class T>
  void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
              const T& value) const {
    cublas_check(call_, "cublasLtMatmulPreferenceSetAttribute",
                 cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value));
  }
  template <class T>
  void set(cublasLtMatrixLayout_t to, cublasLtMatrixLayoutAttribute_t what, const T& value) const {
    cublas_check(call_, "cublasLtMatrixLayoutSetAttribute",
                 cublasLtMatrixLayoutSetAttribute(to, what, &value, sizeof value));
  }
  template <class T>
  void set(cublasLtMatmulDesc_t to, cublasLtMatmulDescAttributes_t what, const T& value) const {
    cublas_check(call_, "cublasLtMatmulDescSetAttribute",
                 cublasLtMatmulDescSetAttribute(to, what, &value, sizeof value));
  }

  Description describe(const Problem& p) const {
    const bool wide = p.compute == CUBLAS_COMPUTE_64F;
    cublasLtMatmulDesc_t raw = nullptr;
    cublas_check(call_, "cublasLtMatmulDescCreate",
                 cublasLtMatmulDescCreate(&raw, p.compute, wide ? CUDA_R_64F : CUDA_R_32F));
    Description y(raw);
    set(raw, CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(raw, CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    return y;
  }

  Layout layout(const Stored& m, cudaDataType_t type) const {
    cublasLtMatrixLayout_t raw = nullptr;
    cublas_check(call_, "cublasLtMatrixLayoutCreate",
                 cublasLtMatrixLayoutCreate(&raw, type, static_cast<std::uint64_t>(m.rows),
                                            static_cast<std::uint64_t>(m.cols), m.leading));
    Layout y(raw);
    set(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(m.batch));
    set(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, m.batch_stride);
    return y;
  }

  const Call& call_;
  Description description_;
  Layout a_, b_, c_;
};

// Row-major, by the contract of Backend::gemm.
Stored stored_result(const View& c) {
  const LastAxes m(c);
  return {m.cols,
          m.rows,
          std::max(m.row_stride, m.cols),
          false,
          c.rank == 3 ? c.size[0] : 1,
          c.rank == 3 ? c.stride[0] : 0};
}

// The algorithm of a problem, chosen once per process.
cublasLtMatmulAlgo_t chosen(DeviceState& state, const Matmul& matmul, const Problem& problem) {
  static std::mutex mutex;
  static auto* const all = new std::map<std::pair<int, Problem>, cublasLtMatmulAlgo_t>;
  const std::lock_guard lock(mutex);
  const std::pair key{state.device().index, problem};
  auto found = all->find(key);
  if (found == all->end()) found = all->emplace(key, matmul.choose(state, problem)).first;
  return found->second;
}

// c = a b + beta c + bias; `bias` may be nullptr.
void multiply(DeviceState& state, const Call& call, const View& a, const View& b, double beta,
              const void* bias, const View& c, bool tf32) {
  const bool wide = a.dtype == Dtype::f64;
  const auto narrow =
      tf32 && a.dtype == Dtype::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const Problem problem{stored(a),        stored(b),        stored_result(c),
                        type_of(a.dtype), type_of(c.dtype), wide ? CUBLAS_COMPUTE_64F : narrow,
                        bias != nullptr,  alignment_of(a),  alignment_of(b),
                        alignment_of(c)};
  const Matmul matmul(call, problem, bias);
  const cublasLtMatmulAlgo_t algorithm = chosen(state, matmul, problem);
  if (wide) {
    matmul.run<double>(state, algorithm, a, b, beta, c);
  } else {
    matmul.run<float>(state, algorithm, a, b, beta, c);
  }
}

}  // namespace

bool library_reads(const View& x) {
  const LastAxes m(x);
  return m.by_rows() || m.by_columns();
}

void library_product(DeviceState& state, const Call& call, const View& a, const View& b,
                     double beta, const View& c, bool tf32) {
  multiply(state, call, a, b, beta, nullptr, c, tf32);
}

// An algorithm is cached for a problem whatever the address of its bias, so only aligned biases are
// used: every algorithm supports them.
bool library_adds(const View& a, const View& bias, const View& c) {
  constexpr std::uintptr_t alignment = 16;
  return c.size[0] > 1 && c.size[1] > 1 && a.size[1] > 1 && bias.stride[1] == 1 &&
         reinterpret_cast<std::uintptr_t>(bias.data) % alignment == 0;
}

void library_affine(DeviceState& state, const Call& call, const View& a, const View& b,
                    const View& bias, const View& c, bool tf32) {
  multiply(state, call, a, b, 0, bias.data, c, tf32);
}

}  // namespace sotto
