// File tags: [sanitized][simd]
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "core/random/chacha20.h"
#include "core/random/philox.h"
#include "core/random/secret_random.h"
#include "core/threads/parallel.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

std::vector<std::uint8_t> bytes_of_hex(const std::string& hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

template <class T>
T from_hex(const std::string& hex) {
  const auto bytes = bytes_of_hex(hex);
  T value;
  REQUIRE(bytes.size() == sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string zeros(int bytes) { return std::string(2 * static_cast<std::size_t>(bytes), '0'); }

void check_block(const std::string& key, const std::string& nonce, std::uint32_t counter,
                 const std::string& block) {
  const auto expected = from_hex<ChaChaBlock>(block);
  const auto y = chacha20_block(from_hex<ChaChaKey>(key), from_hex<ChaChaNonce>(nonce), counter);
  CHECK(std::memcmp(y.word, expected.word, sizeof y.word) == 0);
}

// `text` xor the keystream, with the nonce's first word zero as in RFC 8439, A.2.
std::vector<std::uint8_t> encrypt(const std::string& key, const std::string& nonce,
                                  std::uint32_t counter, std::vector<std::uint8_t> text) {
  const auto words = from_hex<ChaChaNonce>(nonce);
  const ChaChaStream stream{from_hex<ChaChaKey>(key),
                            words.word[1] | std::uint64_t{words.word[2]} << 32, counter};
  std::vector<std::uint8_t> pad(text.size());
  chacha20_keystream(stream, pad.data(), pad.size());
  for (std::size_t i = 0; i < text.size(); ++i) text[i] ^= pad[i];
  return text;
}

std::vector<std::uint64_t> draw(SecretRandom& random, std::size_t n) {
  std::vector<std::uint64_t> words(n);
  random.fill(std::span(words));
  return words;
}

// Runs `body` in a child process and returns its result.
template <class F>
bool in_child(F&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

const std::string key_one = zeros(31) + "01";
const std::string nonce_two = zeros(11) + "02";

}  // namespace

TEST_CASE("the block function gives the blocks of RFC 8439, section 2.3.2 and appendix A.1") {
  check_block("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
              "000000090000004a00000000", 1,
              "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
              "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e");
  check_block(zeros(32), zeros(12), 0,
              "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
              "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586");
  check_block(zeros(32), zeros(12), 1,
              "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
              "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f");
  check_block(key_one, zeros(12), 1,
              "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
              "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0");
  check_block("00ff" + zeros(30), zeros(12), 2,
              "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
              "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096");
  check_block(zeros(32), nonce_two, 0,
              "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
              "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d");
}

TEST_CASE("the keystream encrypts as in RFC 8439, appendix A.2") {
  CHECK(encrypt(zeros(32), zeros(12), 0, std::vector<std::uint8_t>(64)) ==
        bytes_of_hex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
                     "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"));
  const std::string submission =
      "Any submission to the IETF intended by the Contributor for publication as all or part of an "
      "IETF Internet-Draft or RFC and any statement made within the context of an IETF activity is "
      "considered an \"IETF Contribution\". Such statements include oral statements in IETF "
      "sessions, as well as written and electronic communications made at any time or place, which "
      "are addressed to";
  CHECK(encrypt(key_one, nonce_two, 1, {submission.begin(), submission.end()}) ==
        bytes_of_hex("a3fbf07df3fa2fde4f376ca23e82737041605d9f4f4f57bd8cff2c1d4b7955ec"
                     "2a97948bd3722915c8f3d337f7d370050e9e96d647b7c39f56e031ca5eb6250d"
                     "4042e02785ececfa4b4bb5e8ead0440e20b6e8db09d881a7c6132f420e527950"
                     "42bdfa7773d8a9051447b3291ce1411c680465552aa6c405b7764d5e87bea85a"
                     "d00f8449ed8f72d0d662ab052691ca66424bc86d2df80ea41f43abf937d3259d"
                     "c4b2d0dfb48a6c9139ddd7f76966e928e635553ba76c5c879d7b35d49eb2e62b"
                     "0871cdac638939e25e8a1e0ef9d5280fa8ca328b351c3c765989cbcf3daa8b6c"
                     "cc3aaf9f3979c92b3720fc88dc95ed84a1be059c6499b9fda236e7e818b04b0b"
                     "c39c1e876b193bfe5569753f88128cc08aaa9b63d1a16f80ef2554d7189c411f"
                     "5869ca52c5b83fa36ff216b9c1d30062bebcfd2dc5bce0911934fda79a86f6e6"
                     "98ced759c3ff9b6477338f3da4f9cd8514ea9982ccafb341b2384dd902f3d1ab"
                     "7ac61dd29c6f21ba5b862f3730e37cfdc4fd806c22f221"));
  const std::string verse =
      "'Twas brillig, and the slithy toves\nDid gyre and gimble in the wabe:\nAll mimsy were the "
      "borogoves,\nAnd the mome raths outgrabe.";
  CHECK(encrypt("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0", nonce_two, 42,
                {verse.begin(), verse.end()}) ==
        bytes_of_hex("62e6347f95ed87a45ffae7426f27a1df5fb69110044c0d73118effa95b01e5cf"
                     "166d3df2d721caf9b21e5fb14c616871fd84c54f9d65b283196c7fe4f60553eb"
                     "f39c6402c42234e32a356b3e764312a61a5532055716ead6962568f87d3f3f77"
                     "04c6a8d1bcd1bf4d50d6154b6da731b187b58dfd728afa36757a797ac188d1"));
}

TEST_CASE("many blocks side by side are the blocks one by one, past 2^32 too") {
  ChaChaStream stream{
      {{1, 2, 3, 4, 5, 6, 7, 8}}, 0x123456789abcdef0, (std::uint64_t{1} << 32) - 20};
  for (const std::size_t bytes : {1, 63, 64, 1000, 1024, 1025, 5000}) {
    std::vector<std::uint8_t> many(bytes);
    chacha20_keystream(stream, many.data(), bytes);
    for (std::size_t at = 0; at < bytes; at += 64) {
      const ChaChaBlock block = chacha20_block(stream, at / 64);
      CHECK(std::memcmp(block.word, many.data() + at, std::min<std::size_t>(64, bytes - at)) == 0);
    }
  }
}

TEST_CASE("secret and public randomness do not convert, and secret randomness does not copy") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<SecretRandom&, PublicRandom>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<PublicRandom, SecretRandom&>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<SecretRandom, PublicRandom&>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<SecretRandom, std::uint64_t>);
  STATIC_REQUIRE_FALSE(std::is_copy_constructible_v<SecretRandom>);
  STATIC_REQUIRE_FALSE(std::is_copy_assignable_v<SecretRandom>);
  STATIC_REQUIRE(std::is_nothrow_move_constructible_v<SecretRandom>);
}

TEST_CASE("two generators keyed by the system differ, two of one seed agree") {
  SecretRandom a;
  SecretRandom b;
  CHECK(a.secure());
  CHECK(draw(a, 8) != draw(b, 8));
  auto c = SecretRandom::insecure_seeded(7);
  auto d = SecretRandom::insecure_seeded(7);
  auto e = SecretRandom::insecure_seeded(8);
  CHECK_FALSE(c.secure());
  const auto words = draw(c, 8);
  CHECK(words == draw(d, 8));
  CHECK(words != draw(e, 8));
}

TEST_CASE("no word is given twice") {
  auto random = SecretRandom::insecure_seeded(1);
  std::vector<std::uint64_t> all;
  for (int round = 0; round < 50; ++round) {
    for (const std::uint64_t w : draw(random, static_cast<std::size_t>(round))) all.push_back(w);
    for (int i = 0; i < round; ++i) all.push_back(random.word());
  }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}

TEST_CASE("a fill does not depend on the number of threads") {
  constexpr std::size_t n = 300'001;
  const int before = thread_count();
  auto reference = SecretRandom::insecure_seeded(3);
  set_thread_count(1);
  const auto expected = draw(reference, n);
  for (const int threads : {2, 3, 7}) {
    set_thread_count(threads);
    auto random = SecretRandom::insecure_seeded(3);
    CHECK(draw(random, n) == expected);
  }
  set_thread_count(before);
}

TEST_CASE("fills of bytes, half words and words give the same keystream") {
  auto a = SecretRandom::insecure_seeded(3);
  auto b = SecretRandom::insecure_seeded(3);
  auto c = SecretRandom::insecure_seeded(3);
  const auto words = draw(a, 100);
  std::vector<std::uint32_t> halves(200);
  std::vector<std::uint8_t> bytes(800);
  b.fill(std::span(halves));
  c.fill(std::span(bytes));
  CHECK(std::memcmp(words.data(), halves.data(), 800) == 0);
  CHECK(std::memcmp(words.data(), bytes.data(), 800) == 0);
}

TEST_CASE("reserved blocks expand to the words of a fill") {
  auto a = SecretRandom::insecure_seeded(3);
  auto b = SecretRandom::insecure_seeded(3);
  draw(a, 9);
  draw(b, 9);
  std::vector<std::uint64_t> expanded(20);
  chacha20_keystream(a.reserve(3), expanded.data(), 160);
  CHECK(draw(b, 20) == expanded);
  CHECK(draw(a, 8) == draw(b, 8));
}

TEST_CASE("a generator that is used up or was moved from throws") {
  auto random = SecretRandom::insecure_seeded(3);
  CHECK_THROWS_AS(random.reserve((std::uint64_t{1} << 62) + 1), std::invalid_argument);
  random.reserve((std::uint64_t{1} << 62) - 1);
  random.reserve(1);
  CHECK_THROWS_WITH(random.reserve(1), "secret random: used up: 1 blocks requested, 0 left");
  CHECK_THROWS_AS(random.word(), std::invalid_argument);

  auto a = SecretRandom::insecure_seeded(4);
  auto b = SecretRandom::insecure_seeded(4);
  a.word();
  b.word();
  SecretRandom moved = std::move(a);
  CHECK(moved.word() == b.word());
  CHECK(throws([&] { a.word(); }, "moved from"));  // NOLINT(bugprone-use-after-move)
  a = std::move(moved);
  CHECK(a.word() == b.word());
  CHECK_THROWS_AS(moved.word(), std::invalid_argument);  // NOLINT(bugprone-use-after-move)
}

TEST_CASE("a moved or destroyed generator leaves no key behind") {
  alignas(SecretRandom) unsigned char place[sizeof(SecretRandom)];
  auto* const random = new (place) SecretRandom(SecretRandom::insecure_seeded(0x1122334455667788));
  random->word();
  const std::uint64_t seed = 0x1122334455667788;
  const auto holds_seed = [&] {
    return std::search(std::begin(place), std::end(place),
                       reinterpret_cast<const unsigned char*>(&seed),
                       reinterpret_cast<const unsigned char*>(&seed + 1)) != std::end(place);
  };
  CHECK(holds_seed());
  random->~SecretRandom();
  CHECK_FALSE(holds_seed());
}

TEST_CASE("after a fork the child takes a new key, and a seeded generator throws") {
  SecretRandom random;
  auto seeded = SecretRandom::insecure_seeded(5);
  random.word();
  seeded.word();
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  CHECK(in_child([&] {
    const std::uint64_t word = random.word();
    return write(ends[1], &word, sizeof word) == sizeof word;
  }));
  std::uint64_t of_child = 0;
  REQUIRE(read(ends[0], &of_child, sizeof of_child) == sizeof of_child);
  close(ends[0]);
  close(ends[1]);
  bool repeated = false;
  for (int i = 0; i < 64; ++i) repeated = repeated || random.word() == of_child;
  CHECK_FALSE(repeated);
  CHECK(in_child([&] {
    try {
      seeded.word();
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  }));
  CHECK_NOTHROW(seeded.word());
}

// Chi-square with 255 degrees of freedom: a correct generator leaves 155 to 375 once in 100,000.
TEST_CASE("bytes are uniform, and below and uniform stay in their ranges") {
  auto random = SecretRandom::insecure_seeded(6);
  std::vector<std::uint8_t> bytes(1 << 20);
  random.fill(std::span(bytes));
  std::vector<double> count(256);
  for (const std::uint8_t b : bytes) ++count[b];
  const double expected = static_cast<double>(bytes.size()) / 256;
  double chi = 0;
  for (const double c : count) chi += (c - expected) * (c - expected) / expected;
  CHECK(chi > 155);
  CHECK(chi < 375);
  std::vector<int> seen(5);
  for (int i = 0; i < 1000; ++i) {
    ++seen.at(static_cast<std::size_t>(random.below(5)));
    const double u = random.uniform();
    REQUIRE((u >= 0 && u < 1));
  }
  CHECK(*std::min_element(seen.begin(), seen.end()) >
        120);  // 200 expected, six standard errors below
  CHECK_THROWS_AS(random.below(0), std::invalid_argument);
}
