// Ledgers that runs wrote on copies of, put together again.
#include "dp/ledger/ledger_branches.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "dp/ledger/ledger.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"

namespace sotto {
namespace {

using Total = std::map<Event, std::int64_t>;

// Runs that release on copies of one ledger, and what they release.
class Copies {
 public:
  explicit Copies(std::uint64_t seed) : random_(seed) {
    Ledger::create(path(0)).set_population(1000);
  }

  void act() {
    if (below(4) == 0 && files_ < 5) copy();
    const int file = below(files_);
    if (below(4) > 0 || marks_[file].empty()) {
      release(file, Ledger::open(path(file), 1 + below(8)));
    } else {
      const auto& marks = marks_[file];
      release(file, Ledger::resume(
                        path(file),
                        marks[static_cast<std::size_t>(below(static_cast<int>(marks.size())))]));
    }
  }

  // All lines, each file's in order, and now and then what is in several files several times.
  std::string merged() {
    std::vector<std::vector<std::string>> files;
    for (int file = 0; file < files_; ++file) files.push_back(lines_of(read(path(file))));
    std::set<std::string> known;
    std::string all = files[0][0];
    for (std::size_t left = files.size(); left > 0;) {
      auto& file = files[static_cast<std::size_t>(below(static_cast<int>(left)))];
      if (file.empty()) {
        std::swap(file, files[--left]);
        continue;
      }
      if (known.insert(file.front()).second || below(10) == 0) all += file.front();
      file.erase(file.begin());
    }
    return all;
  }

  const Total& released() const { return released_; }
  int files() const { return files_; }

 private:
  int below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
  std::string path(int file) const { return place_.path(std::to_string(file)); }

  void copy() {
    const int from = below(files_);
    std::filesystem::copy_file(path(from), path(files_));
    marks_[files_] = marks_[from];
    ++files_;
  }

  // What a run that goes on releases is never the same, or on two copies it would write the same
  // lines.
  void release(int file, Ledger ledger) {
    const Event event{.noise_multiplier = ledger.resumed() ? 9 + 1e-3 * ++resumed_ : 1 + below(3),
                      .sampling = Sampling::partition,
                      .batches = 1 + below(3)};
    for (int k = 1 + below(9); k > 0; --k) {
      Event next = event;
      next.paid = k % event.batches != 0;
      if (next.paid && epoch_left_[ledger.run_id()] == 0) next.paid = false;
      epoch_left_[ledger.run_id()] =
          next.paid ? epoch_left_[ledger.run_id()] - 1 : event.batches - 1;
      ledger.record(next, ledger.next_draw());
      if (!next.paid) ++released_[next];
    }
    epoch_left_.clear();
    if (below(2) == 0) marks_[file].push_back(ledger.position());
    if (below(5) > 0) return;
    crashed_.push_back(std::move(ledger));  // without settlement until the end
    marks_[file].clear();
  }

  std::mt19937_64 random_;
  Place place_;
  int files_ = 1, resumed_ = 0;
  std::map<int, std::vector<LedgerPosition>> marks_;
  std::map<std::string, std::int64_t> epoch_left_;
  std::vector<Ledger> crashed_;
  Total released_;
};

std::string chain(const std::string& before, const std::string& body) {
  LedgerText text;
  text.checksum = before;
  return add_line(text, body);
}

// The last checksum of a text of lines.
std::string end_of(const std::string& lines) {
  std::string last = lines_of(lines).back();
  last.pop_back();
  return stated_checksum(last);
}

// What all releases of a ledger cost, by event.
Total total(const LedgerContents& contents) {
  Total all;
  for (const auto& [event, count] : contents.events()) all[event] += count;
  return all;
}

// Lines of random copies, mixed; it waits for the disk, at each line of each run. Returns whether
// there were several copies.
bool check_copies(std::uint64_t seed) {
  CAPTURE(seed);
  Copies copies(seed);
  for (int k = 0; k < 12; ++k) copies.act();
  const std::string file = copies.merged();
  const LedgerBranches found = read_branches(file);
  const Total counted = total(found.contents);
  for (const auto& [event, count] : copies.released()) {
    const auto place = counted.find(event);
    REQUIRE(place != counted.end());
    CHECK(place->second >= count);
  }
  for (const auto& line : found.lines) CHECK(line.after >= 0);
  CHECK(found.copies <= copies.files());
  if (found.copies < 2) return false;
  CHECK_THROWS_AS(parse_ledger(file, "f"), SystemFailure);
  CHECK_FALSE(found.contents.history().within_plans);
  return true;
}

}  // namespace

TEST_CASE("no release of a run on a copy is missing, however the copies' lines are mixed",
          "[gate]") {
  int forked = 0;
  for (std::uint64_t seed = 0; seed < 15; ++seed) forked += check_copies(seed) ? 1 : 0;
  CHECK(forked > 8);
}

TEST_CASE("no release of hundreds of copies is missing", "[nightly]") {
  for (std::uint64_t seed = 100; seed < 500; ++seed) check_copies(seed);
}

TEST_CASE("a ledger of one sequence has its contents, in whatever order its lines are") {
  const std::string file =
      file_of({header, plan_line({some_run, {}, 0, {}}, {{sampled, 9}}), reserve(4, 0),
               settle(2, 2), reserve(4, 2), reserve(1, 0, everybody, other_run)});
  const LedgerContents whole = parse_ledger(file, "f").contents;
  std::vector<std::string> lines = lines_of(file);
  std::mt19937_64 random(5);
  for (int round = 0; round < 20; ++round) {
    std::string text;
    for (const std::string& line : lines) text += line;
    const LedgerBranches found = read_branches(text);
    CHECK(found.counted == std::ssize(lines));
    CHECK(found.copies == 1);
    CHECK(found.contents.runs == whole.runs);
    CHECK(found.contents.history().plans == whole.history().plans);
    std::shuffle(lines.begin(), lines.end(), random);
  }
}

TEST_CASE("a reservation that was open where a copy was made counts whole, and an epoch again") {
  const std::string trunk = file_of({header, reserve(16, 0)});
  const std::string settled = chain(end_of(trunk), settle(3, 3)),
                    more = chain(end_of(trunk), reserve(5, 16, sampled, other_run));
  CHECK(total(read_branches(trunk + settled).contents) == Total{{sampled, 3}});
  CHECK(total(read_branches(trunk + settled + more).contents) == Total{{sampled, 21}});
  Event first{.noise_multiplier = 3, .sampling = Sampling::partition, .batches = 4}, paid = first;
  paid.paid = true;
  const std::string epoch = file_of({header, reserve(1, 0, first)});
  const std::string one = chain(end_of(epoch), reserve(3, 1, paid)),
                    other = chain(end_of(epoch), reserve(2, 2, paid));
  CHECK(total(read_branches(epoch + one).contents) == Total{{first, 1}, {paid, 3}});
  CHECK(total(read_branches(epoch + one + other).contents) == Total{{first, 3}, {paid, 5}});
}

TEST_CASE("what follows nothing does not count, and what repeats a line counts once") {
  const std::string file = file_of({header, reserve(4, 0), reserve(4, 4), reserve(4, 8)});
  std::vector<std::string> lines = lines_of(file);
  const LedgerBranches lost = read_branches(lines[0] + lines[2] + lines[3]);
  CHECK(lost.counted == 1);
  CHECK(lost.lines[1].after == -1);
  CHECK(lost.lines[2].after == 2);
  const LedgerBranches twice = read_branches(file + file + "note\n");
  CHECK(twice.counted == 4);
  CHECK(twice.lines[5].repeats == 2);
  CHECK(twice.lines[8].after == -1);
  // A torn line ends with the checksum of another one.
  const std::string torn = lines[2].substr(0, 60) + lines[1];
  const LedgerBranches mended = read_branches(lines[0] + lines[1] + torn + lines[2] + lines[3]);
  CHECK(mended.counted == 4);
  CHECK(read_branches("").counted == 0);
  CHECK(read_branches("no ledger\n").counted == 0);
}

TEST_CASE("ledgers with a selection, a reason or another header on a copy say so") {
  const std::string trunk = file_of({header});
  const std::string select =
      chain(end_of(trunk), selection_line({some_run, {}, 0, {}}, {{1, 0.1}, {{sampled, 3}}}));
  const std::string release = chain(end_of(trunk), reserve(2, 0, sampled, other_run)),
                    reason = chain(end_of(trunk), not_private_line({other_run, {}, 0, {}}, "why"));
  CHECK(read_branches(trunk + select).unknown.empty());
  CHECK_FALSE(read_branches(trunk + select + release).unknown.empty());
  CHECK(read_branches(trunk + release + reason).contents.reasons ==
        std::vector<std::string>{"why"});
  const std::string second =
      file_of({header_line({std::string(32, 'e'), {"a user"}, {}, {}}), reserve(7, 0, everybody)});
  const LedgerBranches both = read_branches(trunk + release + second);
  CHECK(total(both.contents) == Total{{sampled, 2}, {everybody, 7}});
  CHECK(both.contents.header == LedgerHeader{});
}

}  // namespace sotto
