// Replayed clipping equals immediate clipping, bit by bit, and padding rows count for nothing. On
// every GPU present.
// File tags: [gpu]
#include "dp/clipping/captured_gpu_clip.h"
#include "autograd/per_sample/grouping.h"

#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "core/random/secret_random.h"
#include "dp/clipping/clipper_state.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "tests/support/captured_steps.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/launched_network.h"
#include "tests/support/throws.h"

using namespace sotto;

TEST_CASE("a replayed clipping equals the immediate one, while bounds and scales change") {
  for_each_gpu([](Device device) {
    PublicRandom random(3);
    for (const bool by_parameter : {false, true}) {
      for (const NormMethod norm_method :
           {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
        Steps replayed(device, {.norm_method = norm_method}, by_parameter);
        Steps plain(device, {.norm_method = norm_method}, by_parameter);
        for (int step = 0; step < 4; ++step) {
          const std::vector<Tensor> batch = tensors(random_batch(rows, random));
          const bool same = replayed.part(batch) == plain.part(batch, false);
          CHECK(same);
          CHECK(replayed.clipper.state().capture_failure_reason() == "");
          CHECK(plain.clipper.state().capture_failure_reason() == "no captured loss");
          const std::vector<double> bounds(replayed.clipper.groups().size(), 0.4 / (step + 1));
          for (Clipper* clipper : {&replayed.clipper, &plain.clipper}) {
            clipper->discard();
            clipper->set_bounds(bounds);
            clipper->set_loss_scale(step == 1 ? 16 : 1);
          }
        }
      }
    }
  });
}

TEST_CASE("padding rows add nothing to a replayed clipping, whatever they hold") {
  for_each_gpu([](Device device) {
    PublicRandom random(4);
    Steps clean(device, {}, false), spoilt(device, {}, false), plain(device, {}, false);
    const Batch batch = random_batch(rows, random);
    Batch hostile = random_batch(rows, random);
    for (std::int64_t row = 0; row < rows; ++row)
      spoil(hostile.images, row, row % 2 == 0 ? std::nan("") : HUGE_VAL);
    for (const std::int64_t count : {4, 1, 5}) {
      spoilt.part(tensors(hostile));
      CHECK(spoilt.clipper.statistics().not_finite == 6);
      const std::vector<double> got = spoilt.part(first_rows(batch, count));
      const std::vector<double> expected = clean.part(first_rows(batch, count));
      CHECK(got == expected);
      CHECK(spoilt.clipper.state().capture_failure_reason() == "");
      CHECK(distance(got, plain.part(first_rows(batch, count), false)) < 1e-5);
    }
  });
}

TEST_CASE("a sum outlives the replay after it") {
  for_each_gpu([](Device device) {
    PublicRandom random(5);
    Steps steps(device, {}, false);
    const Batch first = random_batch(rows, random), second = random_batch(rows, random);
    const auto add = [&](const Batch& batch) {
      Tape tape(private_tape);
      steps.clipper.add(tape, steps.s.captured(tape, tensors(batch)));
    };
    add(first);
    add(second);
    const std::vector<double> both = flat(steps.clipper.clipped_sums());
    std::vector<double> added = steps.part(tensors(first));
    const std::vector<double> other = steps.part(tensors(second));
    for (std::size_t k = 0; k < both.size(); ++k) added[k] += other[k];
    added.resize(both.size());
    CHECK(distance(both, added) < 1e-5);
  });
}

TEST_CASE("an unreliable replay is clipped once more on the host") {
  for_each_gpu([](Device device) {
    nn::Sequential model{nn::Linear(1, 3, {.bias = false})};
    model.to(device);
    const memory::CapturedLoss::Loss plain = [&](Tape& tape, const std::vector<Tensor>& batch) {
      return sum_per_sample(model(tape.input(batch[0])));
    };
    memory::CapturedLoss captured(model, 2, plain);
    const ClipOptions by_rows{.norm_method = NormMethod::materialize, .per_sample_grad_budget = 0};
    Clipper replayed(flat_group(model.parameters(), 1), by_rows);
    Clipper at_once(flat_group(model.parameters(), 1), by_rows);
    // In the third batch, terms of 1e8 cancel in the first sample's gradient, which needs f64.
    for (const std::vector<float>& x : std::vector<std::vector<float>>{{1, 1, 1, 2, 3, 4},
                                                                       {1, 0, 1, 2, 3, 5},
                                                                       {0.5f, 1e8f, -1e8f, 1, 2, 4},
                                                                       {1, 2, 1, 1, 1, 1}}) {
      const std::vector<Tensor> batch{Tensor::from(x, {2, 3, 1}).to(device)};
      for (Clipper* clipper : {&replayed, &at_once}) {
        clipper->discard();
        Tape tape(private_tape);
        clipper->add(tape, clipper == &replayed ? captured(tape, batch) : plain(tape, batch));
      }
      CHECK(captured.reason() == "");
      CHECK(replayed.state().capture_failure_reason() == "");
      CHECK(replayed.statistics().norms == at_once.statistics().norms);
      CHECK(flat(replayed.clipped_sums()) == flat(at_once.clipped_sums()));
      const double total = double{x[0]} + double{x[1]} + double{x[2]};
      // Norms hold what Gram products may lose, which shows where terms cancel.
      const double norm = replayed.statistics().norms[0][0], exact = std::sqrt(3.0) * total;
      CHECK((x[1] > 1e7F ? norm >= exact : norm == Approx(exact)));
    }
  });
}

TEST_CASE("a clipper that captured losses take turns with clips each's gradients") {
  for_each_gpu([](Device device) {
    PublicRandom random(8);
    Steps steps(device, {}, false), plain(device, {}, false);
    memory::CapturedLoss doubled(steps.s.model, rows,
                                 [&](Tape& tape, const std::vector<Tensor>& batch) {
                                   const Var loss = loss_of(steps.s.model, tape, batch);
                                   return loss + loss;
                                 });
    for (int step = 0; step < 4; ++step) {
      const std::vector<Tensor> batch = tensors(random_batch(rows, random));
      Tape tape(private_tape);
      steps.clipper.discard();
      steps.clipper.add(tape, doubled(tape, batch));
      CHECK(steps.clipper.state().capture_failure_reason() == "");
      const std::vector<double> twice = steps.clipper.statistics().norms[0];
      const bool same = steps.part(batch) == plain.part(batch, false);
      CHECK(same);
      for (std::size_t n = 0; n < twice.size(); ++n)
        CHECK(twice[n] == Approx(2 * steps.clipper.statistics().norms[0][n]).epsilon(1e-5));
    }
  });
}

TEST_CASE("a clipping that cannot be replayed says why, and is done on the host") {
  for_each_gpu([](Device device) {
    PublicRandom random(6);
    const std::vector<Tensor> batch = tensors(random_batch(rows, random));
    Steps steps(device, {}, false);
    const auto reason = [&](const Grouping* grouping, bool twice) {
      steps.clipper.discard();
      Tape tape(private_tape);
      const Var loss = steps.s.captured(tape, batch);
      const Var more = steps.s.plain(tape, on_device(device, batch));
      steps.clipper.add(tape, twice ? loss + more : loss, grouping);
      return steps.clipper.state().capture_failure_reason();
    };
    CHECK(reason(nullptr, true) == "no captured loss");
    const Grouping pairs{.unit_of_row = {0, 0, 1, 1, 2, 2}, .units = 3};
    CHECK(reason(&pairs, false) == "");
    const Grouping uneven{.unit_of_row = {0, 0, 0, 1, 1, 2}, .units = 3};
    CHECK(reason(&uneven, false) == "units that differ in their numbers of rows, or are padded");
    const Grouping four{.unit_of_row = {0, 0, 0, 0, -1, -1}, .units = 1};
    CHECK(reason(&four, false) == "units of 4 rows in a captured batch of 6");
    CHECK(reason(nullptr, false) == "");
    steps.clipper.discard();
    steps.clipper.state().set_passes(ClipPasses::two, 0);
    CHECK(reason(nullptr, false) == "two passes");
  });
}

TEST_CASE("a replay that lost a launch is detected before it counts") {
  for_each_gpu([](Device device) {
    PublicRandom random(12);
    const std::vector<Tensor> batch = tensors(random_batch(rows, random));
    Steps plain(device, {}, false);
    plain.part(batch, false);
    int found = 0;
    for (int launch = 0; launch < 12; ++launch) {
      Steps replayed(device, {}, false);
      Tape tape(private_tape);
      const Var loss =
          replayed.s.captured(tape, batch);  // whole: the lost launch is the clipping's
      if (!lose_launch(launch)) return;
      replayed.clipper.add(tape, loss);
      lose_launch(-1);
      const bool same = flat(replayed.clipper.clipped_sums()) == flat(plain.clipper.clipped_sums());
      CHECK(same);
      found += replayed.clipper.state().capture_failure_reason().find("other values") !=
               std::string::npos;
    }
    CHECK(found > 6);
  });
}

TEST_CASE("gradients beside those that are captured are clipped with them") {
  for_each_gpu([](Device device) {
    PublicRandom random(9);
    const std::vector<Tensor> batch = tensors(random_batch(rows, random));
    for (const bool by_parameter : {false, true}) {
      Setup s(device, rows);
      Parameter shift(zeros({36}, Dtype::f32, device));
      std::vector<ClipGroup> groups{{s.model.parameters(), 0.3}};
      by_parameter ? groups.push_back({{&shift}, 0.2}) : groups[0].parameters.push_back(&shift);
      Clipper clipper(groups);
      const auto part = [&](bool capture) {
        clipper.discard();
        Tape tape(private_tape);
        const std::vector<Tensor> there = on_device(device, batch);
        const Var x = tape.input(reshape(there[0], {rows, 36}));
        const Var more = sum_per_sample(mul(x, tape.use(shift)));
        clipper.add(tape, (capture ? s.captured(tape, batch) : s.plain(tape, there)) + more);
        std::vector<double> all = flat(clipper.clipped_sums());
        for (const auto& norms : clipper.statistics().norms)
          all.insert(all.end(), norms.begin(), norms.end());
        return all;
      };
      const std::vector<double> expected = part(false);
      CHECK(distance(part(true), expected) < 1e-5);
      CHECK(clipper.state().capture_failure_reason() ==
            "gradients that are not captured beside those that are");
    }
  });
}

TEST_CASE("another setting of clipping frees the captured one's memory") {
  for_each_gpu([](Device device) {
    PublicRandom random(10);
    Steps steps(device, {}, false);
    steps.part(tensors(random_batch(rows, random)));
    steps.clipper.discard();
    const std::size_t before = allocator(device).statistics().current;
    steps.clipper.state().set_passes(ClipPasses::two, 0);
    CHECK(allocator(device).statistics().current < before);
  });
}

TEST_CASE("a captured loss that reaches a parameter in no group is refused") {
  for_each_gpu([](Device device) {
    PublicRandom random(7);
    Setup s(device, rows);
    Clipper clipper({{s.model[0].parameters(), 1}});
    Tape tape(private_tape);
    const Var loss = s.captured(tape, tensors(random_batch(rows, random)));
    CHECK(throws([&] { clipper.add(tape, loss); }, "that is in no clip group"));
    CHECK(clipper.broken());
  });
}

namespace {

// The small network of bench_gpu, with fewer images.
class BenchSteps {
 public:
  explicit BenchSteps(Device device) {
    model_.to(device);
    for (Tensor& x : batch_) x = x.to(device);
    optimizer_.emplace(model_, nn::SgdRule{.learning_rate = 0.01});
  }

  // Counts are those of a later step, which compares no replay with a run without a graph.
  PretendedCounts of(bool is_private, bool capture) {
    PretendedCounts before;
    constexpr int compared = 5;
    for (int step = 0; step <= compared; ++step) {
      copy_into(full({}, 0.01 * (step + 1)), batch_[0]);
      before = *pretended_counts();
      is_private ? privately(capture) : ordinarily(capture);
    }
    const PretendedCounts after = *pretended_counts();
    return {after.launches - before.launches, after.waits - before.waits};
  }

 private:
  static constexpr std::int64_t images = 3;

  void ordinarily(bool capture) {
    Tape tape;
    const Var losses = capture ? captured_(tape, batch_) : plain_(tape, batch_);
    SumSink sums;
    tape.backward(losses, sums, 1.0 / images);
    optimizer_->step(sums.gradients());
  }
  void privately(bool capture) {
    Tape tape(private_tape);
    clipper_.add(tape, capture ? captured_(tape, batch_) : plain_(tape, batch_));
    CHECK(clipper_.state().capture_failure_reason() == (capture ? "" : "no captured loss"));
    mechanism_.update(clipper_.finish(sampler_.draw()), ledger_, *optimizer_);
  }

  nn::Sequential model_ = launched_network();
  std::vector<Tensor> batch_{full({images, 1, 28, 28}, 0.01), zeros({images}, Dtype::i64)};
  memory::CapturedLoss::Loss plain_ = [this](Tape& tape, const std::vector<Tensor>& batch) {
    return cross_entropy(model_(tape.input(batch[0])), batch[1]);
  };
  memory::CapturedLoss captured_{model_, images, plain_};
  std::optional<nn::Sgd> optimizer_;
  Clipper clipper_{flat_group(model_.parameters(), 1.0)};
  GaussianMechanism mechanism_{1.0, SecretRandom::insecure_seeded(4)};
  FullBatchSampler sampler_{images};
  Ledger ledger_;
};

}  // namespace

// The table of docs/appendix/gpu-notes.md.
TEST_CASE("a captured private step is few launches, and waits twice") {
  if (!pretended_counts()) return;
  for_each_gpu([](Device device) {
    BenchSteps steps(device);
    const auto check_counts = [&](bool is_private, bool capture, PretendedCounts expected) {
      CAPTURE(is_private, capture);
      const PretendedCounts counts = steps.of(is_private, capture);
      CHECK(counts.launches == expected.launches);
      CHECK(counts.waits == expected.waits);
    };
    check_counts(false, false, {43, 1});
    check_counts(false, true, {10, 1});
    check_counts(true, false, {98, 2});
    check_counts(true, true, {13, 2});
  });
}
