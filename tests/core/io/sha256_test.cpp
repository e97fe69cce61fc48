#include "core/io/sha256.h"

#include <set>

#include "tests/support/catch.h"

using namespace sotto;

// From FIPS 180-2, appendix B, and the NIST example files of FIPS 180-4.
TEST_CASE("SHA-256 gives the standard's values") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklm"
               "nopqrlmnopqrsmnopqrstnopqrstu") ==
        "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  CHECK(sha256(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// From 56 bytes on, the padding needs one more block.
TEST_CASE("SHA-256 tells messages of all lengths around a block apart") {
  std::set<std::string> seen;
  for (std::size_t size = 0; size < 200; ++size) {
    seen.insert(sha256(std::string(size, '\0')));
    seen.insert(sha256(std::string(size, '\xff')));
  }
  CHECK(seen.size() == 399);  // the empty message was hashed twice
}
