// Tunings as the programs spell them.
#include "nn/models/tuning.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;
using nn::parse_tuning;

TEST_CASE("the text of a tuning is read whole or refused") {
  const nn::Tuning tuning =
      parse_tuning("lora:8,alpha=32,targets=q_proj|v_proj,rslora,dropout=0.1,embeddings=frozen");
  CHECK(tuning.lora.rank == 8);
  CHECK(tuning.lora.alpha == 32);
  CHECK(tuning.lora.scale() == Approx(32 / std::sqrt(8.0)));
  CHECK(tuning.lora.dropout == 0.1);
  CHECK(tuning.targets == "q_proj|v_proj");
  CHECK(!tuning.train_embeddings);
  CHECK(parse_tuning("lora:8").lora.scale() == 2);
  CHECK(parse_tuning("last:3").blocks == 3);
  CHECK(parse_tuning("lora:2,last:3,alpha=1").blocks == 3);
  CHECK(parse_tuning("norms").blocks == 0);
  for (const char* text : {"",
                           "al",
                           "all:1",
                           "last",
                           "last:0",
                           "last:x",
                           "last:1x",
                           "lora",
                           "lora:-1",
                           "lora:8,",
                           "lora:8,alpha",
                           "lora:8,alpha=nan",
                           "lora:8,alpha=inf",
                           "lora:8,dropout=1",
                           "lora:8,targets=",
                           "lora:8,targets=(",
                           "head,alpha=2",
                           "head,last:1",
                           "all,last:1",
                           "norms,last:0",
                           "bitfit:2",
                           "all,embeddings=trained",
                           "lora:99999999999999999999"})
    CHECK(throws([&] { parse_tuning(text); }, ""));
}
