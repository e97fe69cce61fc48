#include <csignal>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// An empty folder that is removed with the object.
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

TEST_CASE("a file for its owner only is so from its creation") {
  const Folder folder;
  const auto mode = [](const std::filesystem::path& path) {
    return static_cast<int>(std::filesystem::status(path).permissions());
  };
  const std::string path = folder.file("a");
  put(path, "old");
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  const auto body = [&](FileWriter& writer) {
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
      CHECK(mode(entry) == (entry.path() == path ? 0644 : 0600));
    writer.write("new");
  };
  write_file_atomically(path, body, FileKind::other, Readers::owner);
  CHECK(mode(path) == 0600);
}

TEST_CASE("the old file stays until the new one is complete") {
  const Folder folder;
  const std::string path = folder.file("a");
  put(path, "old");
  write_file_atomically(path, [&](FileWriter& writer) {
    writer.write("new");
    CHECK(read_file(path) == "old");
  });
  CHECK(read_file(path) == "new");
}

TEST_CASE("a full disk is a SystemFailure and leaves the old file") {
  const Folder folder;
  const std::string path = folder.file("a");
  put(path, "old");
  const pid_t child = fork();
  if (child == 0) {
    // A limit on the size of files simulates a full disk.
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

TEST_CASE("a symbolic link stays, and the file that it leads to is replaced") {
  const Folder folder;
  std::filesystem::create_directory(folder.path / "sub");
  put(folder.file("sub/real"), "old");
  std::filesystem::create_symlink("sub/real", folder.path / "second");
  std::filesystem::create_symlink(folder.path / "second", folder.path / "first");
  put(folder.file("first"), "new");
  CHECK(read_file(folder.file("sub/real")) == "new");
  CHECK(std::filesystem::is_symlink(folder.path / "first"));
  CHECK(std::filesystem::is_symlink(folder.path / "second"));
  std::filesystem::create_symlink("sub/none", folder.path / "dangling");
  put(folder.file("dangling"), "made");
  CHECK(read_file(folder.file("sub/none")) == "made");
  std::filesystem::create_symlink("round", folder.path / "round");
  CHECK(throws<SystemFailure>([&] { put(folder.file("round"), "x"); }, "symbolic links"));
}

TEST_CASE("a device is written and not replaced") {
  put("/dev/null", "nowhere");
  struct stat status {};
  REQUIRE(stat("/dev/null", &status) == 0);
  CHECK(S_ISCHR(status.st_mode));
  CHECK(throws<SystemFailure>([] { put("/dev/full", "x"); }, "/dev/full: No space left"));
}

TEST_CASE("a file that is already open is written at its position") {
  const Folder folder;
  int ends[2] = {};
  REQUIRE(pipe(ends) == 0);
  put("/dev/fd/" + std::to_string(ends[1]), "through");
  put("/proc/self/fd/" + std::to_string(ends[1]), " the pipe");
  close(ends[1]);
  CHECK(read_file("/dev/fd/" + std::to_string(ends[0])) == "through the pipe");
  CHECK(throws<SystemFailure>([&] { check_can_write("/dev/fd/" + std::to_string(ends[0])); },
                              "not for writing"));
  close(ends[0]);
  CHECK_THROWS_AS(put("/dev/fd/" + std::to_string(ends[1]), "x"), SystemFailure);
  const Descriptor file = open_file(folder.file("a"), O_WRONLY | O_CREAT, 0600);
  REQUIRE(write(file.number(), "one ", 4) == 4);
  put("/dev/fd/" + std::to_string(file.number()), "two");
  CHECK(read_file(folder.file("a")) == "one two");
}

TEST_CASE("a FIFO is refused at once, to write and to read") {
  const Folder folder;
  const std::string fifo = folder.file("fifo");
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(throws<SystemFailure>([&] { check_can_write(fifo); }, "fifo: a FIFO"));
  CHECK(throws<SystemFailure>([&] { put(fifo, "x"); }, "fifo: a FIFO"));
  CHECK(throws<SystemFailure>([&] { read_file(fifo); }, "fifo: a FIFO"));
  CHECK(throws<SystemFailure>([&] { read_file("/dev/zero"); }, "a character device"));
}

TEST_CASE("a ledger is never replaced, and tensors by tensors only") {
  const Folder folder;
  const std::string ledger = folder.file("a"), tensors = folder.file("b");
  const std::string begins = "{\"sotto_ledger\":3,\"id\":\"\"}\n";
  std::string model = "{\"__metadata__\":{}}";
  model.insert(0, std::string("\x13\0\0\0\0\0\0\0", 8));
  put(ledger, begins);
  put(tensors, model);
  std::filesystem::create_symlink("a", folder.path / "link");
  std::filesystem::create_hard_link(folder.path / "a", folder.path / "hard");
  CHECK(file_kind(ledger) == FileKind::ledger);
  CHECK(file_kind(tensors) == FileKind::tensors);
  for (const char* name : {"a", "link", "hard"}) {
    CHECK(throws<SystemFailure>([&] { put(folder.file(name), "x"); }, "is a ledger"));
    CHECK(throws<SystemFailure>([&] { check_can_write(folder.file(name), FileKind::tensors); },
                                "is a ledger"));
  }
  CHECK(throws<SystemFailure>([&] { put(tensors, "x"); }, "is a checkpoint or model"));
  CHECK_NOTHROW(check_can_write(tensors, FileKind::tensors));
  CHECK(read_file(ledger) == begins);
  CHECK(read_file(tensors) == model);
  for (const char* text : {"", "{", "{\"sotto\":1}", "a report\n{", "12345678{"}) {
    put(folder.file("c"), text);
    CHECK(file_kind(folder.file("c")) == FileKind::other);
  }
}

TEST_CASE("a new file takes the first name that is free, and is its owner's alone") {
  const Folder folder;
  const std::string path = folder.file("a");
  CHECK(write_new_file(path, "first") == path);
  CHECK(write_new_file(path, "second") == path + ".2");
  std::filesystem::create_directory(path + ".3");
  CHECK(write_new_file(path, "third") == path + ".4");
  CHECK(read_file(path) == "first");
  CHECK(read_file(path + ".2") == "second");
  struct stat status {};
  REQUIRE(::stat((path + ".4").c_str(), &status) == 0);
  CHECK((status.st_mode & 07777) == 0600);
  CHECK(status.st_nlink == 1);
  CHECK(folder.count() == 4);
  CHECK(throws<SystemFailure>([&] { write_new_file(folder.file("no/a"), ""); }, "no/a"));
}

TEST_CASE("check_can_write leaves no file") {
  const Folder folder;
  check_can_write(folder.file("a"));
  check_can_write("/dev/null");
  CHECK_THROWS_AS(check_can_write(folder.file("no/such/folder")), SystemFailure);
  CHECK_THROWS_AS(check_can_write(folder.file(std::string(250, 'x'))), SystemFailure);
  CHECK(throws<SystemFailure>([&] { check_can_write(folder.path.string()); }, "Is a directory"));
  CHECK(folder.count() == 0);
}

TEST_CASE("leftovers of dead processes are removed, files of running ones are not") {
  const Folder folder;
  // No process id is as large as the largest value of its type.
  const std::string dead = std::to_string(std::numeric_limits<pid_t>::max());
  const std::string alive = std::to_string(getpid());
  const std::string kept[] = {"a",
                              "a." + alive + ".0.tmp",
                              "b." + dead + ".0.tmp",
                              "a.0.0.tmp",
                              "aa." + dead + ".0.tmp",
                              "a." + dead + ".tmp",
                              "a." + dead + ".0.tmpx",
                              "a.x.0.tmp",
                              "a." + dead + ".0x.tmp"};
  for (const std::string& name : kept) put(folder.file(name), "x");
  put(folder.file("a." + dead + ".0.tmp"), "x");
  put(folder.file("a." + dead + ".12.tmp"), "x");
  put(folder.file("a.statistics.json." + dead + ".3.tmp"), "x");
  remove_leftovers(folder.file("a"));
  for (const std::string& name : kept) CHECK(std::filesystem::exists(folder.file(name)));
  CHECK(folder.count() == std::ssize(kept));
}
