#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "catch.h"
#include "sotto/core/atomic_file.h"
#include "sotto/core/error.h"
#include "tests/throws.h"

using namespace sotto;

namespace {

// An empty folder that goes with the object.
struct Folder {
  std::filesystem::path path;

  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "sotto_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path); }

  std::string file(const std::string& name) const { return (path / name).string(); }
  auto count() const { return std::distance(std::filesystem::directory_iterator(path), {}); }
};

void put(const std::string& path, const std::string& text) {
  write_file_atomically(path, [&](FileWriter& writer) { writer.write(text); });
}

}  // namespace

TEST_CASE("a written file is read back and leaves nothing beside it") {
  const Folder folder;
  const std::string path = folder.file("a");
  std::string text(1'000'000, 'x');
  text[500'000] = '\0';
  put(path, text);
  CHECK(read_file(path) == text);
  put(path, "short");
  CHECK(read_file(path) == "short");
  put(path, "");
  CHECK(read_file(path).empty());
  CHECK(folder.count() == 1);
}

TEST_CASE("pieces are written one after another") {
  const Folder folder;
  write_file_atomically(folder.file("a"), [](FileWriter& writer) {
    writer.write("one ");
    writer.write("");
    writer.write("two");
  });
  CHECK(read_file(folder.file("a")) == "one two");
}

TEST_CASE("a failing writer leaves the old file and no other") {
  const Folder folder;
  const std::string path = folder.file("a");
  put(path, "old");
  CHECK_THROWS_WITH(write_file_atomically(path,
                                          [](FileWriter& writer) {
                                            writer.write("new");
                                            throw std::runtime_error("out of ideas");
                                          }),
                    "out of ideas");
  CHECK(read_file(path) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("the old file is there until the new one is whole") {
  const Folder folder;
  const std::string path = folder.file("a");
  put(path, "old");
  write_file_atomically(path, [&](FileWriter& writer) {
    writer.write("new");
    CHECK(read_file(path) == "old");
  });
  CHECK(read_file(path) == "new");
}

TEST_CASE("a disk that takes no more is a SystemFailure and leaves the old file") {
  const Folder folder;
  const std::string path = folder.file("a");
  put(path, "old");
  const pid_t child = fork();
  if (child == 0) {
    // A limit on the size of files stands for the full disk.
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      put(path, std::string(5000, 'x'));
    } catch (const SystemFailure& error) {
      const std::string text = error.what();
      _exit(text.find(path) != std::string::npos && text.find("too large") != std::string::npos
                ? 0
                : 1);
    }
    _exit(2);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(read_file(path) == "old");
  CHECK(folder.count() == 1);
}

TEST_CASE("errors name the path and the reason") {
  const Folder folder;
  CHECK(throws<SystemFailure>([&] { put(folder.file("no/such/folder"), "x"); },
                              "no/such/folder: No such file or directory"));
  CHECK(throws<SystemFailure>([&] { read_file(folder.file("missing")); },
                              "missing: No such file or directory"));
  CHECK(throws<SystemFailure>([&] { read_file(folder.path.string()); }, "Is a directory"));
  std::filesystem::create_directory(folder.path / "sub");
  CHECK_THROWS_AS(put(folder.file("sub"), "x"), SystemFailure);
  CHECK(folder.count() == 1);
}

TEST_CASE("permissions of the old file are kept") {
  const Folder folder;
  const std::string path = folder.file("a");
  put(path, "old");
  REQUIRE(chmod(path.c_str(), 0600) == 0);
  put(path, "new");
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
}

TEST_CASE("a file name without a folder is in the current one") {
  const Folder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path);
  put("plain", "x");
  std::filesystem::current_path(before);
  CHECK(read_file(folder.file("plain")) == "x");
}

TEST_CASE("a file larger than the limit is not read") {
  const Folder folder;
  const std::string path = folder.file("a");
  for (const std::size_t size : {0, 10, 5000, 100'000}) {
    put(path, std::string(size, 'x'));
    CHECK(read_file(path, size).size() == size);
    if (size > 0) {
      CHECK(throws<SystemFailure>([&] { read_file(path, size - 1); }, "larger than"));
    }
  }
  CHECK_THROWS_AS(read_file("/dev/zero", 100'000), SystemFailure);
}
