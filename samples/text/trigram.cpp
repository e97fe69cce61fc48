#include "samples/text/trigram.h"

#include <algorithm>
#include <cmath>

#include "autograd/ops.h"
#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/text/text_vocabulary.h"

namespace sotto::text {

namespace {

constexpr std::int64_t max_symbols = 512;  // whose table has half a gigabyte
constexpr std::int64_t no_trigram = 0;     // three times `end`: no unit is empty
constexpr double pseudo_count = 0.5;
constexpr double excess = 0.0833;  // E[max(z - 1, 0)] of a standard normal z

// The standard deviation of the noise of a sum that is never negative without it: that of the
// negative values, if noise is symmetric. 0 if there are none.
double noise_stddev(std::span<const float> counts) {
  double squares = 0, negative = 0;
  for (const double count : counts) {
    if (count >= 0) continue;
    squares += count * count;
    ++negative;
  }
  return negative > 0 ? std::sqrt(squares / negative) : 0;
}

std::vector<double> distribution(std::vector<double> weights) {
  double total = 0;
  for (const double weight : weights) total += weight;
  for (double& weight : weights) weight /= total;
  return weights;
}

// The distribution of the next symbol given its counts, of that noise, and a coarser one.
std::vector<double> smoothed(std::span<const double> counts, double noise,
                             const std::vector<double>& prior) {
  const double added = pseudo_count + excess * noise * static_cast<double>(counts.size());
  std::vector<double> weights;
  for (std::size_t c = 0; c < counts.size(); ++c)
    weights.push_back(std::max(counts[c] - noise, 0.0) + added * prior[c]);
  return distribution(std::move(weights));
}

// The table, and the counts after one symbol and after none, which are sums over it.
class Smoothing {
 public:
  Smoothing(std::span<const float> trigrams, std::int64_t symbols)
      : trigrams_(trigrams),
        n_(static_cast<std::size_t>(symbols)),
        noise_(noise_stddev(trigrams)),
        bigrams_(n_ * n_) {
    std::vector<double> unigrams(n_);
    for (std::size_t a = 0; a < n_; ++a) {
      for (std::size_t k = 0; k < bigrams_.size(); ++k)
        bigrams_[k] += trigrams[a * bigrams_.size() + k];
    }
    for (std::size_t k = 0; k < bigrams_.size(); ++k) unigrams[k % n_] += bigrams_[k];
    const double noise = noise_ * static_cast<double>(n_);
    for (double& count : unigrams) count = std::max(count - noise, 0.0) + 1;
    unigrams_ = distribution(std::move(unigrams));
  }

  // The distribution of the symbol after a and b.
  std::vector<double> next(std::size_t a, std::size_t b) const {
    const std::span<const double> bigrams(bigrams_.data() + b * n_, n_);
    const auto trigrams = trigrams_.subspan((a * n_ + b) * n_, n_);
    return smoothed(std::vector<double>(trigrams.begin(), trigrams.end()), noise_,
                    smoothed(bigrams, noise_ * std::sqrt(n_), unigrams_));
  }

 private:
  std::span<const float> trigrams_;
  std::size_t n_;
  double noise_;  // standard deviation, of a cell of the table
  std::vector<double> bigrams_, unigrams_;
};

// For each symbol that a row has read, the one before it: `end` before the first.
std::vector<std::int64_t> before(const std::vector<std::int64_t>& ids, std::int64_t t) {
  std::vector<std::int64_t> y(ids.size(), TextVocabulary::end);
  for (std::size_t k = 1; k < ids.size(); ++k) {
    if (static_cast<std::int64_t>(k) % t != 0) y[k] = ids[k - 1];
  }
  return y;
}

}  // namespace

TrigramNetwork::TrigramNetwork(std::int64_t symbols) : symbols_(symbols) {
  check(symbols <= max_symbols, "--alphabet: {} symbols, and a trigram model has at most {}",
        symbols, max_symbols);
  counts_ = std::make_unique<Parameter>(zeros({symbols * symbols * symbols, 1}));
}

Var TrigramNetwork::forward(const Var& ids, const Tensor& /*lengths*/) {
  const Tensor table = counts_->value.to(cpu);
  const Smoothing smoothing({table.data<float>(), static_cast<std::size_t>(table.numel())},
                            symbols_);
  const std::int64_t n = ids.shape()[0], t = ids.shape()[1];
  const std::vector<std::int64_t> last = ids.value().to(cpu).to_vector<std::int64_t>();
  const std::vector<std::int64_t> first = before(last, t);
  std::vector<float> scores;
  for (std::size_t k = 0; k < last.size(); ++k) {
    for (const double p :
         smoothing.next(static_cast<std::size_t>(first[k]), static_cast<std::size_t>(last[k])))
      scores.push_back(static_cast<float>(std::log(p)));
  }
  return ids.tape().input(Tensor::from(scores, {n, t, symbols_}).to(counts_->value.device()));
}

Var TrigramNetwork::losses(Tape& tape, const Dataset& rows) {
  const Shape& shape = rows.inputs.shape();
  const std::vector<std::int64_t> last = rows.inputs.to(cpu).to_vector<std::int64_t>();
  const std::vector<std::int64_t> first = before(last, shape[1]);
  std::vector<std::int64_t> cells = rows.targets.to(cpu).to_vector<std::int64_t>();
  for (std::size_t k = 0; k < cells.size(); ++k)
    cells[k] = cells[k] < 0 ? no_trigram : (first[k] * symbols_ + last[k]) * symbols_ + cells[k];
  const Var ids = tape.input(Tensor::from(cells, shape).to(rows.inputs.device()));
  return -sum(embedding(tape.use(*counts_), ids, no_trigram), {1, 2});
}

}  // namespace sotto::text
