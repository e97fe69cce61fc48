#include "core/random/secret_random.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "core/cuda/capture.h"
#include "core/error.h"
#include "core/random/philox.h"
#include "core/random/uniform_int.h"

namespace sotto {

namespace {

// The largest number of blocks for which counts of four samples per block fit in 64 bits
// (gaussian.cpp).
constexpr std::uint64_t max_blocks = std::uint64_t{1} << 62;

std::atomic<std::uint64_t> forked{0};

void take_from_system(ChaChaKey& key) {
  const ssize_t got = getrandom(key.word, sizeof key.word, 0);
  // getrandom(2) returns requests of up to 256 bytes completely or not at all.
  if (got != static_cast<ssize_t>(sizeof key.word)) {
    throw SystemFailure(fmt::format("secret random: getrandom: {}", std::strerror(errno)));
  }
}

}  // namespace

std::uint64_t SecretRandom::forks() {
  static const int failure = pthread_atfork(nullptr, nullptr, [] { ++forked; });
  if (failure != 0) {
    throw SystemFailure(fmt::format("secret random: pthread_atfork: {}", std::strerror(failure)));
  }
  return forked.load(std::memory_order_relaxed);
}

SecretRandom::SecretRandom() : generation_(forks()) { take_from_system(next_.key); }

SecretRandom::SecretRandom(std::uint64_t seed) : secure_(false), generation_(forks()) {
  next_.key.word[0] = static_cast<std::uint32_t>(seed);
  next_.key.word[1] = static_cast<std::uint32_t>(seed >> 32);
}

SecretRandom SecretRandom::insecure_seeded(std::uint64_t seed) { return SecretRandom(seed); }

SecretRandom::~SecretRandom() { forget(); }

SecretRandom::SecretRandom(SecretRandom&& other) noexcept { take(other); }

SecretRandom& SecretRandom::operator=(SecretRandom&& other) noexcept {
  if (this != &other) take(other);
  return *this;
}

void SecretRandom::take(SecretRandom& other) noexcept {
  next_ = other.next_;
  open_ = other.open_;
  secure_ = other.secure_;
  generation_ = other.generation_;
  buffer_ = other.buffer_;
  used_ = other.used_;
  other.forget();
}

void SecretRandom::forget() noexcept {
  explicit_bzero(&next_, sizeof next_);
  explicit_bzero(buffer_.data(), sizeof buffer_);
  used_ = buffer_.size();
  open_ = false;
}

void SecretRandom::follow_fork() {
  const std::uint64_t now = forked.load(std::memory_order_relaxed);
  if (generation_ == now || !open_) return;
  check(secure_, "secret random: a seeded generator was carried across a fork: {} forks since",
        now - generation_);
  forget();
  take_from_system(next_.key);
  open_ = true;
  generation_ = now;
}

ChaChaStream SecretRandom::reserve(std::uint64_t blocks) {
  refuse_capture("secret randomness, which must never repeat");
  follow_fork();
  check(open_, "secret random: the generator was moved from, but {} blocks were requested", blocks);
  check(blocks <= max_blocks - next_.block, "secret random: used up: {} blocks requested, {} left",
        blocks, max_blocks - next_.block);
  const ChaChaStream given = next_;
  next_.block += blocks;
  return given;
}

std::uint64_t SecretRandom::word() {
  // refuse_capture() is not inline; calling it for each word would cost more than the word.
  if (Capture::any()) refuse_capture("secret randomness, which must never repeat");
  if (generation_ != forked.load(std::memory_order_relaxed)) follow_fork();
  if (used_ == buffer_.size()) {
    fill(std::span(buffer_));
    used_ = 0;
  }
  const std::uint64_t word = buffer_[used_];
  buffer_[used_++] = 0;
  return word;
}

double SecretRandom::uniform() { return unit_interval(word()); }

std::int64_t SecretRandom::below(std::int64_t n) {
  check(n >= 1, "below: no integers in [0, {})", n);
  return uniform_int(n, [this] { return word(); });
}

void SecretRandom::fill(std::span<std::uint8_t> out) {
  const std::uint64_t blocks = (out.size() + chacha_block_bytes - 1) / chacha_block_bytes;
  chacha20_keystream(reserve(blocks), out.data(), out.size());
}

void SecretRandom::fill(std::span<std::uint32_t> out) {
  fill(std::span(reinterpret_cast<std::uint8_t*>(out.data()), out.size_bytes()));
}

void SecretRandom::fill(std::span<std::uint64_t> out) {
  fill(std::span(reinterpret_cast<std::uint8_t*>(out.data()), out.size_bytes()));
}

}  // namespace sotto
