// A run killed at every point of a cycle goes on from its file to the values that it would have
// had.
// File tags: [gate]
#include <array>
#include <csignal>
#include <filesystem>

#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/safetensors.h"
#include "tests/support/level_problems.h"

namespace sotto::multilevel {
namespace {

constexpr std::int64_t iterations = 9;

// Three levels with cycles of two, each point of which is counted: losses, updates, and saving.
class Run {
 public:
  Run(bool roll_back, std::int64_t killed_at) : killed_at_(killed_at) {
    std::vector<Problem> problems;
    for (std::size_t k = 0; k < 3; ++k) problems.push_back(problem(k, roll_back));
    levels_.emplace(problems, LevelOptions{.upper_to_lower = {{"p2", "p0"}, {"p1", "p0"}},
                                           .lower_to_upper = {{"p0", "p1"}, {"p1", "p2"}},
                                           .roll_back = roll_back});
  }

  // Continues from the file, if there is one, and saves after each step.
  void run(const std::string& path) {
    if (std::filesystem::exists(path)) levels_->load_state(load_safetensors(path).tensors);
    while (levels_->iterations() < iterations) {
      levels_->step();
      point();
      save_safetensors(path, {.tensors = levels_->state()});
      point();
    }
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const Parameter& x : x_) {
      const auto more = x.value.to_vector<double>();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  std::int64_t points() const { return points_; }

 private:
  void point() {
    if (++points_ == killed_at_) ::kill(::getpid(), SIGKILL);
  }
  Problem problem(std::size_t k, bool roll_back) {
    Parameter& own = x_[k];
    optimizers_.push_back(
        std::make_unique<nn::Adam>(std::vector<nn::Adam::Group>{{{&own}, {.learning_rate = 0.1}}}));
    const auto loss = [this, &own](Pass& pass) {
      point();
      Var off = pass.tape.use(own) -
                pass.tape.constant(full({2}, static_cast<double>(pass.rows[0] % 5), Dtype::f64));
      for (Parameter& other : x_) {
        if (&other != &own) off = off + pass.tape.use(other) * pass.tape.use(own);
      }
      return reshape(sum(square(off)), {1});
    };
    return {.name = fmt::format("p{}", k),
            .variables = nn::NamedParameters{{"x", &own}},
            .optimizer = *optimizers_.back(),
            .loss = loss,
            .batches = [](std::int64_t number) { return std::vector{number}; },
            .response = k == 0 ? adam_derivative({.learning_rate = 0.1}) : finite_differences(),
            .unroll_steps = k == 2 ? 1 : 2,
            .steps_per_update = k == 2 && !roll_back ? 2 : 1,
            .before_update = [this](Gradients&) { point(); },
            .after_update = [this] { point(); }};
  }

  std::int64_t killed_at_, points_ = 0;
  std::array<Parameter, 3> x_{Parameter(full({2}, 0.5, Dtype::f64)),
                              Parameter(full({2}, -0.25, Dtype::f64)),
                              Parameter(full({2}, 1, Dtype::f64))};
  std::vector<std::unique_ptr<nn::Optimizer>> optimizers_;
  std::optional<Levels> levels_;
};

// Runs in a process of its own until it is killed; returns whether it was.
bool killed(bool roll_back, std::int64_t point, const std::string& path) {
  const pid_t process = ::fork();
  if (process == 0) {
    try {
      Run(roll_back, point).run(path);
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(process, &status, 0) == process);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST_CASE("a run killed at any point of a cycle resumes to the same values") {
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("levels-{}.safetensors", ::getpid());
  for (const bool roll_back : {false, true}) {
    Run whole(roll_back, 0);
    std::filesystem::remove(path);
    whole.run(path);
    REQUIRE(whole.points() > 60);
    for (std::int64_t point = 1; point <= whole.points(); ++point) {
      std::filesystem::remove(path);
      CHECK(killed(roll_back, point, path));
      Run resumed(roll_back, 0);
      resumed.run(path);
      INFO("point " << point);
      CHECK(resumed.values() == whole.values());
    }
    CHECK(!killed(roll_back, whole.points() + 1, path));
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace sotto::multilevel
