// Prints, as one JSON object a line, the time of a sum over ranks whose elements each have one
// owner: an exchange of blocks, added by their owner in the order of ranks. Run it under mpirun.
#include <span>
#include <vector>

#include <fmt/core.h>

#include "core/ranks/launched_ranks.h"
#include "core/ranks/rank_threads.h"
#include "core/threads/parallel.h"
#include "tests/benchmarks/timing.h"

using namespace sotto;

namespace {

// sum = block 0 + block 1 + ..., in this order.
void add_blocks(const std::vector<std::vector<float>>& blocks, std::vector<float>& sum) {
  parallel_for(std::ssize(sum), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    const auto first = static_cast<std::size_t>(begin), last = static_cast<std::size_t>(end);
    for (std::size_t i = first; i < last; ++i) sum[i] = blocks[0][i];
    for (std::size_t k = 1; k < blocks.size(); ++k)
      for (std::size_t i = first; i < last; ++i) sum[i] += blocks[k][i];
  });
}

void report(Ranks& ranks, std::size_t elements) {
  const auto size = static_cast<std::size_t>(ranks.size());
  const std::size_t shard = elements / size;
  const std::vector<float> values(shard * size, 1);
  std::vector<std::vector<float>> blocks(size, std::vector<float>(shard));
  std::vector<float> sum(shard);
  std::vector<Ranks::Bytes> send;
  std::vector<Ranks::Room> receive;
  for (std::size_t k = 0; k < size; ++k) {
    send.push_back(std::as_bytes(std::span(values).subspan(k * shard, shard)));
    receive.push_back(std::as_writable_bytes(std::span(blocks[k])));
  }
  double best = 1e9, best_move = 1e9;
  for (int i = 0; i < 20; ++i) {
    ranks.broadcast("start", {});
    best = std::min(best, seconds_of([&] {
                      best_move = std::min(best_move, seconds_of([&] {
                                             ranks.exchange("blocks", send, receive).wait();
                                           }));
                      add_blocks(blocks, sum);
                    }));
  }
  if (ranks.rank() == 0)
    fmt::print(
        "{{\"what\": \"sum over ranks\", \"ranks\": {}, \"bytes\": {}, \"exchange_ms\": {:.3f}, "
        "\"milliseconds\": {:.3f}}}\n",
        size, elements * sizeof(float), best_move * 1e3, best * 1e3);
}

}  // namespace

int main() {
  const auto ranks = launched_ranks();
  share_processors(*ranks);
  for (const std::size_t elements :
       {std::size_t{1} << 10, std::size_t{1} << 20, std::size_t{1} << 24})
    report(*ranks, elements);
}
