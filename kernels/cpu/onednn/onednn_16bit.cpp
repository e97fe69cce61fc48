// bf16 products by the processor's bf16 instructions (AVX-512 or AMX), which multiply exactly and
// add in f32, like the portable tiles, but several times as fast.
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "core/threads/parallel.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/cpu/onednn/onednn_conv.h"

namespace sotto {
namespace {

using dnnl::memory;

// Limit of the cache of primitives; if it is exceeded, shapes do not recur and the cache is
// cleared.
constexpr std::size_t kept = 1024;

// c [rows, cols] f32 = a [rows, k] b [k, cols], bf16, row-major; b may have any strides and is
// first reordered for the primitive.
struct BfloatProduct {
  memory::desc a, b, c, plain, scratchpad;
  dnnl::matmul multiply;
  dnnl::reorder order;
};

using Key = std::array<std::int64_t, 5>;  // rows, k, cols, strides of b

std::shared_ptr<const BfloatProduct> make(const Key& key) {
  const auto [rows, k, cols, row_stride, col_stride] = key;
  constexpr auto bf16 = memory::data_type::bf16;
  constexpr auto by_rows = memory::format_tag::ab;
  dnnl::primitive_attr own_scratchpad;
  own_scratchpad.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  BfloatProduct p;
  p.a = {{rows, k}, bf16, by_rows};
  p.c = {{rows, cols}, memory::data_type::f32, by_rows};
  p.plain = memory::desc({k, cols}, bf16, memory::dims{row_stride, col_stride});
  const memory::desc any({k, cols}, bf16, memory::format_tag::any);
  const dnnl::matmul::primitive_desc described(dnnl::matmul::desc(p.a, any, p.c), own_scratchpad,
                                               onednn_engine());
  if (std::string_view(described.impl_info_str()).find("ref") != std::string_view::npos)
    return nullptr;
  p.b = described.weights_desc();
  p.scratchpad = described.scratchpad_desc();
  p.multiply = dnnl::matmul(described);
  p.order = dnnl::reorder({onednn_engine(), p.plain, onednn_engine(), p.b});
  return std::make_shared<const BfloatProduct>(std::move(p));
}

std::shared_ptr<const BfloatProduct> bfloat_product(const Key& key) {
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const BfloatProduct>> products;
  const std::lock_guard lock(mutex);
  if (const auto found = products.find(key); found != products.end()) return found->second;
  std::shared_ptr<const BfloatProduct> made;
  try {
    made = make(key);
  } catch (const dnnl::error&) {
    // oneDNN has no primitive for this shape; nullptr records that.
  }
  if (products.size() >= kept) products.clear();
  return products[key] = made;
}

// One b, reordered for the primitive.
class Prepared {
 public:
  Prepared(std::shared_ptr<const BfloatProduct> product, const Matrix& b)
      : p_(std::move(product)),
        stream_(onednn_engine()),
        weights_(p_->b.get_size(), cpu),
        scratch_(p_->scratchpad.get_size(), cpu) {
    memory from(p_->plain, onednn_engine(), b.data), to(p_->b, onednn_engine(), weights_.data());
    p_->order.execute(stream_, from, to);
  }
  void multiply(void* a, void* c) {
    p_->multiply.execute(
        stream_, {{DNNL_ARG_SRC, memory(p_->a, onednn_engine(), a)},
                  {DNNL_ARG_WEIGHTS, memory(p_->b, onednn_engine(), weights_.data())},
                  {DNNL_ARG_DST, memory(p_->c, onednn_engine(), c)},
                  {DNNL_ARG_SCRATCHPAD, memory(p_->scratchpad, onednn_engine(), scratch_.data())}});
  }

 private:
  std::shared_ptr<const BfloatProduct> p_;
  dnnl::stream stream_;
  Storage weights_, scratch_;
};

// Like prepare_tile(), for an a of bf16 and a row-major c without gaps. Falls back to
// prepare_tile() if b is not bf16 or the processor has no bf16 instructions.
TileProduct prepare_bfloat_tile(const Matrix& b, std::int64_t rows) {
  const OneThread one;
  if (b.dtype != Dtype::bf16 || b.rows == 0 || !has_bf16_instructions())
    return prepare_tile(b, rows);
  auto product = bfloat_product({rows, b.rows, b.cols, b.row_stride, b.col_stride});
  if (!product) return prepare_tile(b, rows);
  const auto prepared = std::make_shared<Prepared>(std::move(product), b);
  const auto dense = std::make_shared<Storage>(
      static_cast<std::size_t>(rows * b.rows) * size_of(Dtype::bf16), cpu);
  return [prepared, dense, k = b.rows](const Matrix& a, const Matrix& c) {
    const OneThread one;
    void* data = a.data;
    if (a.dtype != Dtype::bf16 || a.col_stride != 1 || a.row_stride != k) {
      data = dense->data();
      copy_matrix(a, {data, Dtype::bf16, a.rows, k, k, 1});
    }
    prepared->multiply(data, c.data);
  };
}

}  // namespace

void OnednnBackend::gemm(View a, View b, double beta, View c) {
  if (c.numel() > 0 && are_16bit(a, b, c) && a.dtype == Dtype::bf16 && b.dtype == Dtype::bf16)
    return gemm_16bit_by(prepare_bfloat_tile, a, b, beta != 0, c);
  CpuBackend::gemm(a, b, beta, c);
}

}  // namespace sotto
