#include <utility>
#include <vector>

#include "core/error.h"
#include "core/io/unnamed_file.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/tables/table_reader.h"

namespace sotto {

namespace {

constexpr std::int64_t rows_at_a_time = 1 << 14;

// Appends the rows of one tensor after another to a file that is mapped in the end.
class MappedRows {
 public:
  explicit MappedRows(const std::string& folder) : file_(folder) {}

  void append(const Tensor& rows) {
    file_.append({rows.view().as<const std::byte>(), rows.bytes()});
    shape_ = shape_.rank() == 0 ? rows.shape() : shape_with(shape_[0] + rows.size(0));
    dtype_ = rows.dtype();
  }
  Tensor tensor() const {
    return shape_.numel() == 0 ? Tensor::empty(shape_, dtype_)
                               : Tensor::from_block(file_.map(), shape_, dtype_);
  }

 private:
  Shape shape_with(std::int64_t rows) const {
    Shape shape = shape_;
    shape[0] = rows;
    return shape;
  }

  UnnamedFile file_;
  Shape shape_;
  Dtype dtype_ = Dtype::f32;
};

// Joins the tensors of the parts that come at the same place in Dataset::map.
class InMemory {
 public:
  void append(const Tensor& rows) { parts_.push_back(rows); }
  Tensor tensor() const { return concat(parts_, 0); }

 private:
  std::vector<Tensor> parts_;
};

// Gives the tensors of each part to stores, and returns those that they come to.
template <class MakeStore>
Dataset read_all(TableReader& reader, const std::string& path, const MakeStore& make_store) {
  std::vector<decltype(make_store())> stores;
  std::vector<std::int64_t> units;
  const Dataset first = reader.next(rows_at_a_time);
  if (first.size() == 0) throw SystemFailure(fmt::format("table: {}: no rows", path));
  for (Dataset part = first; part.size() > 0; part = reader.next(rows_at_a_time)) {
    std::size_t k = 0;
    part.map([&](const Tensor& x) {
      if (k == stores.size()) stores.push_back(make_store());
      stores[k++].append(x);
      return x;
    });
    units.insert(units.end(), part.units.begin(), part.units.end());
  }
  std::size_t k = 0;
  Dataset all = first.map([&](const Tensor&) { return stores[k++].tensor(); });
  all.units = std::move(units);
  return all;
}

}  // namespace

Dataset read_table(const std::string& path, const TableSchema& schema, const TableOptions& options,
                   const std::string& folder) {
  TableReader reader(path, schema, options);
  if (folder.empty()) return read_all(reader, path, [] { return InMemory(); });
  return read_all(reader, path, [&] { return MappedRows(folder); });
}

}  // namespace sotto
