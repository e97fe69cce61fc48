// A thousand runs killed at random points: the ledger never counts less than what left the
// mechanism, and every run continues from its checkpoint.
// File tags: [gate]
#include <array>
#include <csignal>
#include <optional>
#include <random>

#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "dp/clipping/clipper.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/poisson_samplers.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"

using namespace sotto;

namespace {

constexpr std::int64_t block = 4;
constexpr int releases_of_a_life = 40, releases_between_checkpoints = 7;
constexpr char before_release = 'b', after_release = 'a';

// A run's checkpoint: the step of its model, and the ledger's mark.
struct Saved {
  std::int64_t step = 0;
  LedgerPosition mark;
};

std::optional<Saved> load(const std::string& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  const auto object = nlohmann::json::parse(read(path));
  return Saved{object.at("step").get<std::int64_t>(),
               ledger_position_from_json(object.at("mark").dump())};
}

void save(const std::string& path, std::int64_t step, Ledger& ledger) {
  const nlohmann::json object = {{"step", step},
                                 {"mark", nlohmann::json::parse(to_json(ledger.position()))}};
  write_file_atomically(path, [&](FileWriter& writer) { writer.write(object.dump()); });
}

void tell(int pipe, char what) {
  if (::write(pipe, &what, 1) != 1) ::_exit(1);
}

// One life of a run: noise on two weights, reported through the pipe before and after each release.
void live(const std::string& ledger_path, const std::string& checkpoint, int pipe) {
  const std::optional<Saved> saved = load(checkpoint);
  Ledger ledger =
      saved ? Ledger::resume(ledger_path, saved->mark, block) : Ledger::open(ledger_path, block);
  Parameter weights(zeros({2}));
  Clipper clipper({{{&weights}, 1}});
  GaussianMechanism often(1), seldom(2);
  PoissonSampler sampler(1000, 1e-12);
  sampler.resume_from(ledger.next_draw());
  std::int64_t step = saved ? saved->step : 0;
  for (int i = 0; i < releases_of_a_life; ++i) {
    GaussianMechanism& mechanism = i % 11 < 8 ? often : seldom;
    ClippedSum sum = clipper.finish(sampler.draw());
    tell(pipe, before_release);
    mechanism.release(std::move(sum), ledger);
    tell(pipe, after_release);
    ++step;
    if (step % releases_between_checkpoints == 0) save(checkpoint, step, ledger);
  }
}

// A run in a process of its own.
class Child {
 public:
  Child(const std::string& ledger, const std::string& checkpoint) {
    int ends[2];
    if (::pipe(ends) != 0) throw SystemFailure("pipe");
    process_ = ::fork();
    if (process_ == 0) {
      ::close(ends[0]);
      try {
        live(ledger, checkpoint, ends[1]);
      } catch (const std::exception&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }

  // Reads this many words from the run.
  void hear(std::uint64_t words) {
    char word = 0;
    for (; words > 0 && ::read(pipe_, &word, 1) == 1; --words) count(word);
  }
  // Returns whether it was killed or ended, and did not fail.
  bool kill() {
    ::kill(process_, SIGKILL);
    int status = 0;
    ::waitpid(process_, &status, 0);
    hear(~std::uint64_t{0});
    ::close(pipe_);
    return WIFSIGNALED(status) || WEXITSTATUS(status) == 0;
  }
  std::int64_t begun() const { return begun_; }
  std::int64_t released() const { return released_; }

 private:
  void count(char word) {
    begun_ += word == before_release;
    released_ += word == after_release;
  }

  pid_t process_ = -1;
  int pipe_ = -1;
  std::int64_t begun_ = 0, released_ = 0;
};

// Spins for a random time.
void spin(std::uint64_t turns) {
  volatile std::uint64_t turn = 0;
  while (turn < turns) turn = turn + 1;
}

// Checks the files after a kill.
void check_files(const Place& place, const std::array<std::string, 2>& checkpoints,
                 std::int64_t released, std::int64_t max) {
  const LedgerContents contents = parse_ledger(read(place.path()), "f").contents;
  const std::int64_t counted = total_releases(contents.events());
  CHECK(counted >= released);
  CHECK(counted <= max);
  for (const std::string& path : checkpoints) {
    if (const std::optional<Saved> saved = load(path)) CHECK(saved->mark.releases <= counted);
  }
}

}  // namespace

// Pairs of runs share a ledger, each pair for twenty lives.
TEST_CASE("a ledger never counts less than what a killed run released") {
  constexpr int pairs = 25, lives = 20;
  constexpr std::uint64_t max_words = 60, max_turns = 2000000;
  std::mt19937_64 random(9);
  for (int pair = 0; pair < pairs; ++pair) {
    const Place place;
    { Ledger::create(place.path()); }
    const std::array checkpoints = {place.path("first"), place.path("second")};
    std::int64_t released = 0, max = 0;
    for (int life = 0; life < lives; ++life) {
      std::array<Child, 2> children = {Child(place.path(), checkpoints[0]),
                                       Child(place.path(), checkpoints[1])};
      for (Child& child : children) {
        child.hear(random() % max_words);
        spin(random() % max_turns);
        CHECK(child.kill());
        released += child.released();
        max += child.begun() + block;
      }
      check_files(place, checkpoints, released, max);
    }
    CHECK(released > lives);
    for (const std::string& path : checkpoints) {
      if (const std::optional<Saved> saved = load(path))
        CHECK(Ledger::resume(place.path(), saved->mark).releases() >= released);
    }
  }
}
