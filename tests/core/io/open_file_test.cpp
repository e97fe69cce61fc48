// File tags: [sanitized]
#include "core/io/open_file.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/atomic_file.h"
#include "dp/ledger/ledger.h"
#include "tests/support/catch.h"
#include "tests/support/ledger_files.h"

using namespace sotto;

namespace {

// Runs f in a process that was started with some of its standard streams closed, as daemons are:
// bit k of `closed` stands for number k. Returns whether f returned.
template <class F>
bool run_without(int closed, F&& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int number = 0; number <= STDERR_FILENO; ++number) {
      if ((closed >> number & 1) != 0) ::close(number);
    }
    try {
      f();
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Writes a word to every writable standard stream, except those of the test itself.
void print_everywhere(int closed) {
  for (int number = 0; number <= STDERR_FILENO; ++number) {
    if ((closed >> number & 1) != 0) [[maybe_unused]]
      const ssize_t n = ::write(number, "word", 4);
  }
}

constexpr int every_choice = 1 << (STDERR_FILENO + 1);

}  // namespace

TEST_CASE("an opened file never gets the number of a standard stream, whichever are closed") {
  const Place place;
  for (int closed = 0; closed < every_choice; ++closed) {
    CHECK(run_without(closed, [&] {
      const Descriptor file = open_file(place.path("a"), O_RDWR | O_CREAT, 0600);
      const Descriptor again = same_file(file.number());
      check(file.number() > STDERR_FILENO && again.number() > STDERR_FILENO, "{}", file.number());
      check(::fcntl(file.number(), F_GETFD) == FD_CLOEXEC, "inherited");
      for (int number = 0; number <= STDERR_FILENO; ++number) {
        const bool is_open = ::fcntl(number, F_GETFD) >= 0;
        check(is_open == ((closed >> number & 1) == 0), "{} is not as it was", number);
      }
    }));
  }
}

TEST_CASE("a file that cannot be opened says why") {
  const Place place;
  errno = 0;
  CHECK(!open_file(place.path("no/such"), O_RDONLY).is_open());
  CHECK(errno == ENOENT);
  CHECK(!same_file(1 << 20).is_open());
}

TEST_CASE("a ledger and files are sound in a program that prints with its output closed") {
  for (int closed = 1; closed < every_choice; ++closed) {
    const Place place;
    CHECK(run_without(closed, [&] {
      Ledger ledger = Ledger::create(place.path());
      for (std::uint64_t draw = 0; draw < 20; ++draw) {
        ledger.record(sampled, draw);
        print_everywhere(closed);
      }
      write_file_atomically(place.path("text"), [&](FileWriter& writer) {
        print_everywhere(closed);
        writer.write("whole");
      });
      ledger.position();
    }));
    CHECK(parse_ledger(read(place.path()), "f").contents.events() == EventCounts{{sampled, 20}});
    CHECK(read(place.path("text")) == "whole");
  }
}
