// Captured clipping of privacy units of several rows equals the immediate one. On every GPU
// present.
// File tags: [gpu]
#include "autograd/per_sample/grouping.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper_state.h"
#include "tests/support/captured_steps.h"
#include "tests/support/fake_gpu_counts.h"

using namespace sotto;

namespace {

Grouping in_order(std::int64_t units, std::int64_t each, bool mean) {
  Grouping grouping{.unit_of_row = {}, .units = units, .mean = mean};
  for (std::int64_t row = 0; row < units * each; ++row) grouping.unit_of_row.push_back(row / each);
  return grouping;
}

}  // namespace

TEST_CASE("units of several rows are clipped by a replay as they are at once") {
  for_each_gpu([](Device device) {
    PublicRandom random(14);
    for (const std::int64_t each : {2, 3, 6}) {
      for (const NormMethod norm_method : {NormMethod::automatic, NormMethod::materialize}) {
        for (const bool mean : {false, true}) {
          CAPTURE(each, mean);
          Steps replayed(device, {.norm_method = norm_method}, false);
          Steps plain(device, {.norm_method = norm_method}, false);
          for (std::int64_t units = rows / each; units > 0; --units) {
            const Grouping all = in_order(rows / each, each, mean),
                           grouping = in_order(units, each, mean);
            // A unit that is not finite is left out, and leaves nothing to the batch after it.
            Batch hostile = random_batch(rows, random);
            spoil(hostile.images, rows - 1, std::nan(""));
            replayed.part(tensors(hostile), true, &all);
            CHECK(replayed.clipper.statistics().not_finite == 1);
            const std::vector<Tensor> batch = first_rows(random_batch(rows, random), units * each);
            const std::vector<double> got = replayed.part(batch, true, &grouping);
            CHECK(replayed.clipper.state().capture_failure_reason() == "");
            CHECK(replayed.clipper.statistics().norms[0].size() == static_cast<std::size_t>(units));
            const std::vector<double> expected = plain.part(batch, false, &grouping);
            const bool full = units * each == rows;
            CHECK((full ? got == expected : distance(got, expected) < 1e-5));
          }
        }
      }
    }
  });
}

TEST_CASE("units of other numbers of rows take turns without being captured anew") {
  if (!pretended_counts()) return;
  for_each_gpu([](Device device) {
    PublicRandom random(15);
    Steps steps(device, {}, false), plain(device, {}, false);
    const Grouping pairs = in_order(3, 2, false), triples = in_order(2, 3, true);
    std::vector<std::int64_t> launches;
    for (int step = 0; step < 12; ++step) {
      const std::vector<Tensor> batch = tensors(random_batch(rows, random));
      const Grouping* const grouping =
          std::array{&pairs, &triples, (const Grouping*)nullptr}[step % 3];
      const std::int64_t before = pretended_counts()->launches;
      const std::vector<double> got = steps.part(batch, true, grouping);
      launches.push_back(pretended_counts()->launches - before);
      CHECK(steps.clipper.state().capture_failure_reason() == "");
      const bool same = got == plain.part(batch, false, grouping);
      CHECK(same);
    }
    // The loss compares its first five replays with runs without a graph.
    for (std::size_t step = 9; step < 12; ++step) {
      CHECK(launches[step] == launches[step - 3]);
      CHECK(launches[step] < launches[step - 9] / 2);
    }
  });
}
