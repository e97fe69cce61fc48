#include "samples/tabular/network.h"

#include <algorithm>
#include <numeric>

#include "autograd/ops.h"
#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers.h"

namespace sotto::tabular {

namespace {

constexpr std::int64_t max_width = 1 << 16;
constexpr std::int64_t max_layers = 64;
constexpr std::int64_t max_pieces = 256;

// Hidden layers with tanh, whose gradients are bounded (Papernot et al. 2021), and a linear one.
nn::Sequential perceptron(std::int64_t inputs, std::int64_t outputs,
                          const TableNetworkOptions& options) {
  nn::Sequential layers;
  for (std::int64_t k = 0; k < options.layers; ++k) {
    layers.add(nn::Linear(inputs, options.hidden));
    layers.add(nn::Tanh());
    inputs = options.hidden;
  }
  layers.add(nn::Linear(inputs, outputs, {.bias = !options.no_bias}));
  return layers;
}

// One row of a matrix: an affine function of one input.
struct PieceRow {
  std::int64_t input;
  float slope, offset;
};

// The pieces of each number, and each category as it is. A standardised number is divided from
// three deviations below the mean to three above.
std::vector<PieceRow> piece_rows(const TableSchema& schema, const TableNetworkOptions& options) {
  std::vector<PieceRow> rows;
  std::int64_t input = 0;
  for (const TableColumn& column : schema.columns) {
    if (column.kind == ColumnKind::category) {
      for (std::int64_t k = 0; k < column.category_count(); ++k) rows.push_back({input++, 1, 0});
    }
    if (column.kind != ColumnKind::number) continue;
    const auto p = static_cast<float>(options.pieces);
    const bool standardized = column.standardization || options.standardize;
    const float width = standardized ? 6 : 1, middle = standardized ? 3 : 0;
    for (std::int64_t k = 0; k < options.pieces; ++k)
      rows.push_back({input, p / width, p / width * middle - static_cast<float>(k)});
    ++input;
  }
  return rows;
}

// The inputs' pieces, by a matrix that is not trained.
class Pieces final : public nn::Module {
 public:
  Pieces(const std::vector<PieceRow>& rows, std::int64_t inputs)
      : matrix_(inputs, std::ssize(rows)) {
    std::vector<float> slopes(rows.size() * static_cast<std::size_t>(inputs)), offsets;
    for (std::size_t k = 0; k < rows.size(); ++k) {
      slopes[k * static_cast<std::size_t>(inputs) + static_cast<std::size_t>(rows[k].input)] =
          rows[k].slope;
      offsets.push_back(rows[k].offset);
    }
    matrix_.weight->value = Tensor::from(slopes, matrix_.weight->value.shape());
    matrix_.bias->value = Tensor::from(offsets, matrix_.bias->value.shape());
    matrix_.freeze();
  }
  Var forward(const Var& x) override { return clamp(matrix_(x), 0, 1); }
  void visit(const nn::Visitor& visitor) override { visitor("matrix", matrix_); }

 private:
  nn::Linear matrix_;
};

class Perceptron final : public Network {
 public:
  explicit Perceptron(nn::Sequential layers) : layers_(std::move(layers)) {}
  Var forward(const Var& inputs, const Tensor& /*categories*/) override { return layers_(inputs); }
  void visit(const nn::Visitor& visitor) override { visitor("layers", layers_); }

 private:
  nn::Sequential layers_;
};

std::int64_t number_count(const TableSchema& schema) {
  return std::count_if(schema.columns.begin(), schema.columns.end(),
                       [](const auto& column) { return column.kind == ColumnKind::number; });
}

// Each category has a vector, a row of one table; the categories of column k begin at firsts_[k].
class EmbeddingNetwork final : public Network {
 public:
  EmbeddingNetwork(const TableSchema& schema, std::int64_t outputs,
                   const TableNetworkOptions& options)
      : firsts_(firsts(schema.category_counts())),
        table_(firsts_.back(), options.embedding),
        layers_(
            perceptron(number_count(schema) + columns() * options.embedding, outputs, options)) {}

  Var forward(const Var& numbers, const Tensor& categories) override {
    const Var vectors = flatten(table_(numbers.tape().input(table_rows(categories))));
    if (numbers.shape()[1] == 0) return layers_(vectors);
    return layers_(concat({numbers, vectors}, 1));
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("categories", table_);
    visitor("layers", layers_);
  }

 private:
  // The sums of the counts before each column, and of all.
  static std::vector<std::int64_t> firsts(const std::vector<std::int64_t>& counts) {
    std::vector<std::int64_t> sums(counts.size() + 1);
    std::partial_sum(counts.begin(), counts.end(), sums.begin() + 1);
    return sums;
  }
  std::int64_t columns() const { return std::ssize(firsts_) - 1; }
  // The rows of the table for categories [n, columns].
  Tensor table_rows(const Tensor& categories) const {
    std::vector<std::int64_t> rows = categories.to_vector<std::int64_t>();
    for (std::size_t k = 0; k < rows.size(); ++k)
      rows[k] += firsts_[k % static_cast<std::size_t>(columns())];
    return Tensor::from(rows, categories.shape()).to(categories.device());
  }

  std::vector<std::int64_t> firsts_;
  nn::Embedding table_;
  nn::Sequential layers_;
};

// A network of inputs that are standardised first.
class OnStandardized final : public Network {
 public:
  OnStandardized(std::int64_t inputs, std::unique_ptr<Network> network)
      : standardize(inputs), network_(std::move(network)) {}
  Var forward(const Var& inputs, const Tensor& categories) override {
    return (*network_)(standardize(inputs), categories);
  }
  void visit(const nn::Visitor& visitor) override {
    visitor("standardize", standardize);
    visitor("network", *network_);
  }

  nn::Standardize standardize;

 private:
  std::unique_ptr<Network> network_;
};

std::int64_t input_count(const TableNetworkOptions& options, const TableSchema& schema) {
  return reads_indices(options) ? number_count(schema) : schema.width();
}

// The ranges of the numbers among the network's inputs, which have no categories where it reads
// their indices.
std::map<std::int64_t, StatisticRange> ranges_of(const TableNetworkOptions& options,
                                                 const TableSchema& schema) {
  if (!reads_indices(options)) return number_ranges(schema);
  TableSchema numbers = schema;
  std::erase_if(numbers.columns,
                [](const auto& column) { return column.kind == ColumnKind::category; });
  return number_ranges(numbers);
}

// The means [classes, width] of the rows of each class.
Tensor class_means(const Dataset& rows, const std::vector<std::string>& classes) {
  const std::int64_t count = std::ssize(classes);
  const Tensor ones = full({rows.size(), 1}, 1);
  const std::vector<float> sizes = scatter_add(ones, rows.targets, 0, count).to_vector<float>();
  std::vector<float> shares;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    check(sizes[k] > 0, "--prototypes: no row has the class {}", classes[k]);
    shares.push_back(1 / sizes[k]);
  }
  return mul(scatter_add(rows.inputs, rows.targets, 0, count), Tensor::from(shares, {count, 1}));
}

// x less its mean over axis 0.
Tensor centred(const Tensor& x) {
  return sub(x, scale(sum(x, {0}, true), 1 / static_cast<double>(x.size(0))));
}

void check_range(const char* option, std::int64_t value, std::int64_t min, std::int64_t max) {
  check(value >= min && value <= max, "{}: {} is not from {} to {}", option, value, min, max);
}

}  // namespace

std::vector<std::string> network_names() { return {"logistic", "mlp", "embedding"}; }

bool reads_indices(const TableNetworkOptions& options) { return options.model == "embedding"; }

Var forward_rows(Network& network, Tape& tape, const Dataset& rows) {
  const auto categories = rows.fields.find("categories");
  return network(tape.input(rows.inputs),
                 categories == rows.fields.end() ? Tensor() : categories->second);
}

StandardizeOptions standardize_options(nn::Module& network, const TableNetworkOptions& options,
                                       const TableSchema& schema) {
  return {.layer = &dynamic_cast<OnStandardized&>(network).standardize,
          .ranges = ranges_of(options, schema)};
}

namespace {

std::unique_ptr<Network> make_plain_network(const TableNetworkOptions& options,
                                            const TableSchema& schema) {
  const auto classes = static_cast<std::int64_t>(schema.classes().size());
  const std::int64_t outputs = std::max<std::int64_t>(1, classes);
  if (options.model == "embedding")
    return std::make_unique<EmbeddingNetwork>(schema, outputs, options);
  TableNetworkOptions layers = options;
  if (options.model == "logistic") layers.layers = 0;
  if (options.pieces == 1)
    return std::make_unique<Perceptron>(perceptron(schema.width(), outputs, layers));
  const std::vector<PieceRow> rows = piece_rows(schema, options);
  nn::Sequential all{Pieces(rows, schema.width())};
  all.add(perceptron(std::ssize(rows), outputs, layers));
  return std::make_unique<Perceptron>(std::move(all));
}

}  // namespace

std::unique_ptr<Network> make_network(const TableNetworkOptions& options,
                                      const TableSchema& schema) {
  check_range("--hidden", options.hidden, 1, max_width);
  check_range("--layers", options.layers, 1, max_layers);
  check_range("--pieces", options.pieces, 1, max_pieces);
  check_range("--embedding", options.embedding, 1, max_width);
  check(options.model != "embedding" || !schema.category_counts().empty(),
        "--model embedding: the schema has no column of kind category (mlp needs none)");
  auto network = make_plain_network(options, schema);
  if (!options.standardize) return network;
  check(!number_ranges(schema).empty(),
        "--standardize: the schema has no number with a range and without mean and deviation");
  return std::make_unique<OnStandardized>(input_count(options, schema), std::move(network));
}

void start_at_prototypes(Network& network, const Dataset& rows, double scale,
                         const TableSchema& schema) {
  const Tensor means = class_means(rows, schema.classes());
  const Tensor squares = sum(mul(means, means), {1});
  for (const auto& [name, parameter] : network.named_parameters()) {
    const bool weight = parameter->value.rank() == 2;
    parameter->value = sotto::scale(centred(weight ? means : squares), weight ? scale : -scale / 2);
  }
}

}  // namespace sotto::tabular
