// The bytes that the sample memory_tour counts are those of the formulas in
// docs/appendix/memory-notes.md.
#include <nlohmann/json.hpp>

#include "samples/memory_tour/page.h"
#include "samples/models/step_bytes.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

TEST_CASE("the bytes of each technique are those of its formula") {
  // Powers of two, which the allocator's size classes do not round.
  const memory_tour::Network network{.width = 64, .layers = 4, .batch = 128};
  const auto exercises = memory_tour::tour(network);
  REQUIRE(exercises.size() == 5);
  for (const memory_tour::Exercise& exercise : exercises) {
    for (const memory_tour::Row& row : exercise.rows) {
      INFO(exercise.title << ", " << row.technique);
      CHECK(row.measured == row.predicted);
      CHECK(row.peak >= row.measured);
    }
  }
  const std::string html = to_html(network, exercises);
  CHECK(html.find("bytes over the parts") != std::string::npos);
  CHECK(html.find("bytes over the layers of a segment") != std::string::npos);
  CHECK(html.find("nan") == std::string::npos);
  CHECK(to_json(network, exercises)["exercises"][1]["rows"][3]["technique"] == "8 parts");
}

TEST_CASE("a private step peaks near the ordinary one, and each technique lowers the peak") {
  const auto exercises = memory_tour::tour({.width = 64, .layers = 8, .batch = 512});
  const auto peak = [&](std::size_t exercise, std::size_t row) {
    return static_cast<double>(exercises[exercise].rows[row].peak);
  };
  for (std::size_t row = 1; row < exercises[1].rows.size(); ++row)
    CHECK(peak(1, row) < 0.75 * peak(1, row - 1));
  CHECK(peak(2, 1) < 0.9 * peak(2, 0));
  CHECK(peak(2, 3) > peak(2, 2));  // one segment of all layers recomputes all of them at once
  CHECK(peak(3, 1) < 0.9 * peak(3, 0));
  CHECK(peak(4, 1) < 2 * peak(4, 0));  // holds every layer's output gradient until norms are known
  for (const std::size_t row : {2, 3}) CHECK(peak(4, row) < 1.2 * peak(4, 0));
}

TEST_CASE("a tour refuses a batch that it cannot divide, and conflicting settings") {
  CHECK(throws([] { memory_tour::tour({.batch = 12}); }, "a batch of 12 is not a multiple of 8"));
  CHECK(throws([] { memory_tour::tour({.layers = 0}); }, "0 layers"));
  const models::StepSetting fused{.accumulation = 2, .fused_update = true};
  CHECK(throws([&] { models::StepRun(nullptr, nullptr, fused); }, "neither accumulation"));
}
