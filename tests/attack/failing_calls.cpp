// A library to be loaded before a program's others (LD_PRELOAD): of the system calls on files in
// one folder the k-th fails, or the program's life ends there.
//   FAILING_FOLDER   the folder, as the program spells it
//   FAILING_CALL     k, from 1
//   FAILING_ACTION   a number: errno, of this call; "N+": of this and all later ones; "before",
//                    "after": SIGKILL before the call, or after it; "torn": SIGKILL after half of
//                    what was to be written; "short": half of it is written, or read
//                    none: nothing happens to them, and their number is reported at the end
//   FAILING_REPORT   a file that gets a line with the name of the call that it was
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <string_view>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

enum class Action { none, error, errors, kill_before, kill_after, torn, half };

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Action action_called(const std::string& text) {
  if (text == "before") return Action::kill_before;
  if (text == "after") return Action::kill_after;
  if (text == "torn") return Action::torn;
  if (text == "short") return Action::half;
  if (text.empty()) return Action::none;
  return text.back() == '+' ? Action::errors : Action::error;
}

struct Plan {
  std::string folder = environment("FAILING_FOLDER");
  std::string report = environment("FAILING_REPORT");
  std::string text = environment("FAILING_ACTION");
  long call = std::atol(environment("FAILING_CALL").c_str());
  Action action = action_called(text);
  std::atomic<long> calls{0};
  std::array<std::atomic<bool>, 4096> watched{};  // by the number of the open file
};

Plan& plan() {
  static auto* const made = new Plan;
  return *made;
}

bool in_folder(const char* path) {
  const std::string& folder = plan().folder;
  return !folder.empty() && path != nullptr && std::string_view(path).starts_with(folder);
}

bool watched(int file) {
  return file >= 0 && file < static_cast<int>(plan().watched.size()) &&
         plan().watched[static_cast<std::size_t>(file)];
}

void watch(int file, bool on) {
  if (file >= 0 && file < static_cast<int>(plan().watched.size()))
    plan().watched[static_cast<std::size_t>(file)] = on;
}

void report(const std::string& line) {
  const int file = next<int(const char*, int, ...)>("open64")(
      plan().report.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  next<ssize_t(int, const void*, size_t)>("write")(file, line.data(), line.size());
  next<int(int)>("close")(file);
}

// Says at the end how many calls there were, of which none was touched.
struct Count {
  ~Count() {
    if (plan().action == Action::none) report(std::to_string(plan().calls));
  }
} count;

// Counts a call that is ours, and returns what is to be done to it.
Action fate(const char* name, bool ours) {
  Plan& p = plan();
  if (!ours) return Action::none;
  const long number = ++p.calls;
  if (number != p.call && !(p.action == Action::errors && number > p.call)) return Action::none;
  if (p.action != Action::none && number == p.call) report(name);
  return p.action;
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  while (true) ::pause();
}

// `call` with all that was asked for, or `half` with a part of it.
template <class Call, class Half>
auto attempt(const char* name, bool ours, Call&& call, Half&& half) -> decltype(call()) {
  const Action action = fate(name, ours);
  if (action == Action::error || action == Action::errors) {
    errno = std::atoi(plan().text.c_str());
    return -1;
  }
  if (action == Action::kill_before) die();
  const auto result = action == Action::torn || action == Action::half ? half() : call();
  if (action == Action::kill_after || action == Action::torn) die();
  return result;
}

template <class Call>
auto attempt(const char* name, bool ours, Call&& call) -> decltype(call()) {
  return attempt(name, ours, call, call);
}

}  // namespace

// As the library is built for files of any size, these are open64, pread64 and so on.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  const bool ours = in_folder(path);
  const int file = attempt(
      "open", ours, [&] { return next<int(const char*, int, ...)>("open64")(path, flags, mode); });
  watch(file, ours);
  return file;
}

int close(int file) {
  const bool ours = watched(file);
  watch(file, false);
  return attempt("close", ours, [&] { return next<int(int)>("close")(file); });
}

ssize_t read(int file, void* into, size_t size) {
  const auto real = [&](size_t some) {
    return next<ssize_t(int, void*, size_t)>("read")(file, into, some);
  };
  return attempt(
      "read", watched(file), [&] { return real(size); }, [&] { return real((size + 1) / 2); });
}

ssize_t pread(int file, void* into, size_t size, off_t at) {
  const auto real = [&](size_t some) {
    return next<ssize_t(int, void*, size_t, off_t)>("pread64")(file, into, some, at);
  };
  return attempt(
      "pread", watched(file), [&] { return real(size); }, [&] { return real((size + 1) / 2); });
}

ssize_t write(int file, const void* from, size_t size) {
  const auto real = [&](size_t some) {
    return next<ssize_t(int, const void*, size_t)>("write")(file, from, some);
  };
  return attempt(
      "write", watched(file), [&] { return real(size); }, [&] { return real(size / 2); });
}

int fsync(int file) {
  return attempt("fsync", watched(file), [&] { return next<int(int)>("fsync")(file); });
}

int fdatasync(int file) {
  return attempt("fdatasync", watched(file), [&] { return next<int(int)>("fdatasync")(file); });
}

int ftruncate(int file, off_t size) noexcept {
  return attempt("ftruncate", watched(file),
                 [&] { return next<int(int, off_t)>("ftruncate64")(file, size); });
}

int fchmod(int file, mode_t mode) noexcept {
  return attempt("fchmod", watched(file),
                 [&] { return next<int(int, mode_t)>("fchmod")(file, mode); });
}

int fstat(int file, struct stat* status) noexcept {
  return attempt("fstat", watched(file),
                 [&] { return next<int(int, struct stat*)>("fstat64")(file, status); });
}

int lstat(const char* path, struct stat* status) noexcept {
  return attempt("lstat", in_folder(path),
                 [&] { return next<int(const char*, struct stat*)>("lstat64")(path, status); });
}

int rename(const char* from, const char* to) noexcept {
  return attempt("rename", in_folder(from),
                 [&] { return next<int(const char*, const char*)>("rename")(from, to); });
}

int unlink(const char* path) noexcept {
  return attempt("unlink", in_folder(path), [&] { return next<int(const char*)>("unlink")(path); });
}

int fcntl(int file, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return attempt("fcntl", watched(file),
                 [&] { return next<int(int, int, ...)>("fcntl64")(file, command, argument); });
}

}  // extern "C"
