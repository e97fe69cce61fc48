#include "core/io/file_lock.h"

#include <filesystem>
#include <functional>

#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace sotto {
namespace {

namespace fs = std::filesystem;

// Runs `f` in a child process, which ends there, and returns its result.
bool in_child(const std::function<bool()>& f) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(f() ? 1 : 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

}  // namespace

TEST_CASE("a name has one owner at a time, in this process and in others") {
  const TemporaryFolder folder;
  const std::string name = folder.path("model");
  auto lock = lock_name(name);
  REQUIRE(lock);
  CHECK(fs::exists(name + ".lock"));
  CHECK_FALSE(lock_name(name));
  CHECK_FALSE(in_child([&] { return lock_name(name) != nullptr; }));
  CHECK_FALSE(in_child([&] { return (lock.reset(), lock_name(name)) != nullptr; }));
  CHECK_FALSE(lock_name(name));
  CHECK(lock_name(folder.path("other")));
  lock.reset();
  CHECK_FALSE(fs::exists(name + ".lock"));
  CHECK(in_child([&] { return lock_name(name) != nullptr; }));
  CHECK(lock_name(name));
}

TEST_CASE("a process that dies leaves no lock") {
  const TemporaryFolder folder;
  const std::string name = folder.path("model");
  CHECK(in_child([&] {
    static const auto kept = lock_name(name);  // _exit() destroys nothing
    return kept != nullptr;
  }));
  REQUIRE(fs::exists(name + ".lock"));
  CHECK(lock_name(name));
  CHECK_FALSE(fs::exists(name + ".lock"));
}

TEST_CASE("a name's symbolic link has the same lock") {
  const TemporaryFolder folder;
  fs::create_symlink("model", folder.path("link"));
  const auto lock = lock_name(folder.path("link"));
  CHECK_FALSE(lock_name(folder.path("model")));
}

TEST_CASE("a file of this name that holds something is locked and kept") {
  const TemporaryFolder folder;
  folder.write("poetry.lock", "somebody's");
  CHECK(lock_name(folder.path("poetry")));
  CHECK(fs::file_size(folder.path("poetry.lock")) == 10);
}

TEST_CASE("a name that cannot be locked is an error") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(lock_name(folder.path("no/folder")), SystemFailure);
  CHECK_THROWS_AS(lock_name("/dev/null"), SystemFailure);
  fs::create_directory(folder.path("model.lock"));
  CHECK_THROWS_AS(lock_name(folder.path("model")), SystemFailure);
}

}  // namespace sotto
