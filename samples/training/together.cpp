#include "samples/training/together.h"

#include <optional>
#include <utility>
#include <vector>

#include <unistd.h>
#include <nlohmann/json.hpp>
#include "core/io/xxh64.h"
#include "core/ranks/collectives.h"
#include "core/ranks/rank_failure.h"
#include "nn/optim/rank_sink.h"

namespace sotto::samples {

void check_equal(Ranks& ranks, const std::string& what, const std::string& text, Shown shown) {
  const auto all = gather(ranks, "programs: " + what, text);
  on_rank_0(ranks, "programs: agreement", [&] {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const bool same = all[rank] == text;
      check(shown == Shown::yes || same, "{}: not the same on rank {} as on rank 0", what, rank);
      check(same, "{}: {} on rank {}, and {} on rank 0", what, all[rank], rank, text);
    }
  });
}

Checkpoint broadcast_checkpoint(Ranks& ranks, const std::function<Checkpoint()>& load) {
  if (ranks.size() == 1) return load();
  std::optional<Checkpoint> loaded;
  TensorFile file;
  using Entry = std::pair<std::string, std::string>;
  const auto [program, metadata] = broadcast(ranks, "programs: checkpoint", [&] {
    loaded = load();
    file = without_engine(*loaded);
    return std::pair(loaded->program,
                     std::vector<Entry>(file.metadata.begin(), file.metadata.end()));
  });
  file.tensors = nn::broadcast_tensors(ranks, file.tensors);
  if (loaded) return *loaded;
  file.metadata = {metadata.begin(), metadata.end()};
  return parse_checkpoint(file, program);
}

std::array<std::string, 2> fingerprints(const Data& data) {
  return {fmt::format("{:016x}", data.train.hash(data.hash_of_rest)),
          fmt::format("{:016x}", data.test.hash())};
}

}  // namespace sotto::samples
