// Clipping on every GPU present gives the CPU's results, and synchronizes once for each physical
// batch.
// File tags: [gpu]
#include "dp/clipping/gpu_clip.h"

#include <optional>

#include "autograd/per_sample/per_sample_grad.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/captured_setup.h"
#include "tests/support/failing_memory.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

constexpr TapeOptions private_tape{.private_data = true};
constexpr ClipRule::Kind kinds[] = {ClipRule::Kind::minimum, ClipRule::Kind::opacus,
                                    ClipRule::Kind::auto_s, ClipRule::Kind::normalize,
                                    ClipRule::Kind::psac};

struct How {
  ClipRule rule = {};
  NormMethod norm_method = NormMethod::automatic;
  ClipPasses passes = ClipPasses::one;
  bool by_parameter = false;
  std::optional<Grouping> units = {};
  std::size_t per_sample_grad_budget = std::size_t{512} << 20;
};

struct Clipped {
  std::vector<double> sums;
  ClipStatistics statistics;
};

std::vector<ClipGroup> groups_of(nn::Module& model, bool by_parameter) {
  if (!by_parameter) return flat_group(model.parameters(), 0.3);
  std::vector<ClipGroup> groups;
  for (Parameter* parameter : model.parameters()) groups.push_back({{parameter}, 0.2});
  return groups;
}

// Clips physical batches of one network, one after another.
Clipped clip(Device device, const std::vector<Batch>& parts, const How& how) {
  Setup s(device, 1);
  Clipper clipper(groups_of(s.model, how.by_parameter),
                  {.rule = how.rule,
                   .norm_method = how.norm_method,
                   .per_sample_grad_budget = how.per_sample_grad_budget},
                  how.passes);
  for (const Batch& part : parts) {
    Tape tape(private_tape);
    const Var loss = s.plain(tape, on_device(device, tensors(part)));
    clipper.add(tape, loss, how.units ? &*how.units : nullptr);
  }
  return {flat(clipper.clipped_sums()), clipper.statistics()};
}

void check_same(const Clipped& got, const Clipped& expected, double close = tolerance(Dtype::f32)) {
  CHECK(distance(got.sums, expected.sums) < close);
  REQUIRE(got.statistics.norms.size() == expected.statistics.norms.size());
  for (std::size_t group = 0; group < got.statistics.norms.size(); ++group) {
    const auto& norms = expected.statistics.norms[group];
    REQUIRE(got.statistics.norms[group].size() == norms.size());
    for (std::size_t n = 0; n < norms.size(); ++n) {
      const double norm = got.statistics.norms[group][n];
      CHECK(
          (norm == Approx(norms[n]).epsilon(close) || (std::isnan(norm) && std::isnan(norms[n]))));
      CHECK(got.statistics.factors[group][n] ==
            Approx(expected.statistics.factors[group][n]).epsilon(close));
    }
  }
  CHECK(got.statistics.not_finite == expected.statistics.not_finite);
  CHECK(got.statistics.units == expected.statistics.units);
  CHECK(got.statistics.loss_sum == Approx(expected.statistics.loss_sum).epsilon(close));
}

void poison(Batch& batch, std::int64_t sample, double value) {
  copy_into(full({}, value), batch.images.select(0, sample));
}

}  // namespace

TEST_CASE("device code: factors of several parameters' gradients, by every rule") {
  Random random(57);
  constexpr std::int64_t parameters = 3, samples = 7;
  const Tensor terms = Tensor::empty({ClipTerms::rows, parameters, samples}, Dtype::f64);
  double* const values = terms.data<double>();
  const auto at = [&](std::int64_t row, std::int64_t k, std::int64_t n) -> double& {
    return values[(row * parameters + k) * samples + n];
  };
  for (std::int64_t k = 0; k < parameters; ++k) {
    for (std::int64_t n = 0; n < samples; ++n) {
      at(ClipTerms::squares, k, n) = static_cast<double>(between(random, 0, 9));
      at(ClipTerms::error_bounds, k, n) = n == 2 ? 3 : 1e-9;
      at(ClipTerms::term_norms, k, n) = n == 5 && k == 2 ? 1e6 : 1e-3;
      at(ClipTerms::needs_f64, k, n) = n == 3 && k == 1 ? std::nan("") : n == 4 && k == 2 ? 2 : 0;
    }
  }
  at(ClipTerms::squares, 1, 0) = std::nan("");
  at(ClipTerms::squares, 1, 1) = HUGE_VAL;
  at(ClipTerms::squares, 0, 5) = -1e-9;
  at(ClipTerms::needs_f64, 0, 6) = 1;
  const Tensor settings = Tensor::from(std::vector<double>{0.5, 4, 6}, {ClipSettings::rows});
  for (const auto kind : kinds) {
    const auto run = [&] {
      const Tensor y = unwritten({ClipResults::rows, samples}, {0, 1}, Dtype::f64);
      backend(cpu).clip_factors({kind}, 0x1p-20, terms.view(), settings.view(), y.view());
      return y;
    };
    const Tensor expected = run();
    const auto result = [&](std::int64_t row, std::int64_t n) {
      return expected.data<double>()[row * samples + n];
    };
    for (std::int64_t n = 0; n < samples; ++n) {
      GradientNorm length;
      for (std::int64_t k = 0; k < parameters; ++k)
        length.add(at(ClipTerms::squares, k, n), at(ClipTerms::error_bounds, k, n),
                   at(ClipTerms::term_norms, k, n), 4);
      const double factor = n < 6 ? length.factor({kind}, 0.5, 0x1p-20, 4) : 0;
      CHECK(result(ClipResults::factors, n) == factor);
      CHECK(result(ClipResults::weights, n) == factor / 4);
      const bool apart = length.apart(factor, 0.5);
      CHECK(apart == (n == 5));
      CHECK(result(ClipResults::needs_f64, n) == (n == 3 || n == 4 || apart ? 1 : 0));
    }
    for_each_device_code([&] { CHECK(same_bits(run(), expected)); });
  }
}

// Clip factors keep sums finite; a sum that is not finite must not be used.
TEST_CASE("a sum that is not finite is not reliable") {
  for_each_gpu([](Device device) {
    Parameter a(zeros({3}, Dtype::f32, device)), b(zeros({3}, Dtype::f32, device));
    const std::vector<ClipGroup> groups{{{&a}, 1}, {{&b}, 1}};
    GpuClip clip(groups, {.units = 2, .rows = 2}, device);
    clip.write_settings(1, 2);
    clip.add_losses(full({2}, 3, Dtype::f32, device));
    const auto rows = [&](double value) {
      return std::vector{PerSampleGrad::materialized(full({2, 3}, value, Dtype::f32, device))};
    };
    for (const double value : {2.0, std::nan(""), HUGE_VAL}) {
      clip.start();
      for (std::size_t group = 0; group < 2; ++group) {
        clip.add_norm(group, *groups[group].parameters[0], rows(1));
        clip.find_factors(group);
      }
      clip.add_sum(0, a, rows(1));
      clip.add_sum(1, b, rows(value));
      clip.read();
      CHECK(clip.reliable(0));
      CHECK(clip.reliable(1) == std::isfinite(value));
      CHECK(clip.norms(0, 2)[1] == Approx(std::sqrt(3.0)));
      CHECK(clip.losses() == std::vector<double>{3, 3});
      REQUIRE(clip.sums(1).size() == 1);
      CHECK(clip.sums(1)[0].first == &b);
    }
  });
}

TEST_CASE("a sample of weight 0 on a GPU adds nothing, or the sum is flagged") {
  for_each_gpu([](Device device) {
    const Tensor weights = Tensor::from(std::vector<double>{0.5, 0, 2}, {3}).to(device);
    const auto total = [&](double b, double a) {
      const Tensor left = full({3, 2, 4}, 1), right = full({3, 2, 5}, 3);
      copy_into(full({}, b), left.select(0, 1));
      copy_into(full({}, a), right.select(0, 1));
      const PerSampleGrad f = PerSampleGrad::outer(left.to(device), right.to(device), {4, 5});
      return values(f.sum(weights));
    };
    const std::vector<double> expected(20, 2 * 3 * 2.5);
    for (const double b : {1.0, std::nan(""), HUGE_VAL}) CHECK(total(b, 7) == expected);
    for (const double a : {std::nan(""), HUGE_VAL}) {
      for (const double v : total(1, a)) CHECK(std::isnan(v));
    }
  });
}

TEST_CASE(
    "a GPU clips as the CPU does, by every rule, norm method, grouping and number of passes") {
  for_each_gpu([](Device device) {
    PublicRandom random(3);
    const std::vector<Batch> parts{random_batch(5, random), random_batch(4, random)};
    const auto same = [&](const How& how) {
      CAPTURE(static_cast<int>(how.rule.kind), static_cast<int>(how.norm_method), how.by_parameter);
      check_same(clip(device, parts, how), clip(cpu, parts, how));
    };
    for (const auto kind : kinds) same({.rule = {kind}});
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      for (const bool by_parameter : {false, true}) {
        for (const NormMethod norm_method : {NormMethod::ghost, NormMethod::materialize})
          same({.norm_method = norm_method, .passes = passes, .by_parameter = by_parameter});
      }
    }
    // Budgets: for the gradients of one group at a time, and for no materialized gradients.
    same({.by_parameter = true, .per_sample_grad_budget = 1});
  });
}

TEST_CASE("a GPU clips units of several rows as the CPU does") {
  for_each_gpu([](Device device) {
    PublicRandom random(4);
    const std::vector<Batch> parts{random_batch(5, random)};
    for (const bool mean : {false, true}) {
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        const How how{.passes = passes,
                      .units = Grouping{.unit_of_row = {2, 0, -1, 2, 0}, .units = 3, .mean = mean}};
        check_same(clip(device, parts, how), clip(cpu, parts, how));
      }
    }
  });
}

TEST_CASE("a batch on the host is clipped as one on the model's GPU") {
  for_each_gpu([](Device device) {
    PublicRandom random(7);
    const Batch batch = random_batch(4, random);
    const Tensor ids = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 2, 2, 4, 0}, {4, 2});
    nn::manual_seed(5);
    nn::Sequential pictures = small_network(),
                   texts{nn::Embedding(5, 3), nn::LSTM(3, 4, {.batch_first = true})};
    for (nn::Module* model : {&pictures, &texts}) {
      model->to(device);
      const Tensor input = model == &pictures ? batch.images : ids;
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        const auto clipped = [&](const Tensor& x) {
          Clipper clipper(flat_group(model->parameters(), 0.3), {}, passes);
          Tape tape(private_tape);
          clipper.add(tape, sum_per_sample((*model)(tape.input(x))));
          return flat(clipper.clipped_sums());
        };
        CHECK(clipped(input) == clipped(input.to(device)));
      }
    }
  });
}

TEST_CASE("hostile samples are left out on a GPU as on the CPU, and spoil no sum") {
  for_each_gpu([](Device device) {
    PublicRandom random(5);
    for (const double value : {std::nan(""), HUGE_VAL, 1e30, -1e30, 3e38, 1e-30, 0.0}) {
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        CAPTURE(value);
        std::vector<Batch> parts{random_batch(4, random), random_batch(4, random)};
        poison(parts[1], 2, value);
        const How how{.passes = passes};
        const Clipped got = clip(device, parts, how);
        check_same(got, clip(cpu, parts, how));
        for (const double v : got.sums) REQUIRE(std::isfinite(v));
      }
    }
  });
}

namespace {

// The clipped sum of uses of one weight: a linear layer's, over given inputs and output gradients
// [n, t, ...].
struct Factors {
  Tensor x, dy;
};
Clipped clip_uses(Device device, const std::vector<Factors>& uses, NormMethod norm_method,
                  ClipPasses passes) {
  Parameter w(zeros({uses[0].dy.size(2), uses[0].x.size(2)}, Dtype::f32, device));
  Clipper clipper(flat_group({&w}, 1), {.norm_method = norm_method}, passes);
  Tape tape(private_tape);
  std::optional<Var> loss;
  for (const Factors& f : uses) {
    const Var y = sum_per_sample(linear(tape.input(f.x.to(device)), tape.use(w)) *
                                 tape.input(f.dy.to(device)));
    loss = loss ? *loss + y : y;
  }
  clipper.add(tape, *loss);
  return {flat(clipper.clipped_sums()), clipper.statistics()};
}

Tensor column(const std::vector<float>& values, std::int64_t samples) {
  const std::int64_t positions = std::ssize(values) / samples;
  return Tensor::from(values, {samples, positions, 1});
}

}  // namespace

TEST_CASE("terms that cancel, and sums that overflow, are clipped on a GPU as on the CPU") {
  for_each_gpu([](Device device) {
    const Tensor ones = full({2, 4, 1}, 1);
    const std::vector<std::vector<Factors>> cases{
        {{column({1, 1e8f, -1e8f, -1, 1, 2, 3, 4}, 2), ones}},
        // Two uses whose gradients cancel.
        {{column({1.0000001f, 0}, 2), column({3e9f, 0}, 2)},
         {column({1.0000002f, 1}, 2), column({-2.99999969e9f, 1}, 2)}},
        // Products of +-1e40 at two positions, with a gradient of zero.
        {{column({1e20f, 1e20f, 1, 2}, 2), column({1e20f, -1e20f, 1, 1}, 2)}}};
    for (const auto& uses : cases) {
      for (const NormMethod norm_method :
           {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
        for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
          CAPTURE(&uses - cases.data(), static_cast<int>(norm_method));
          const Clipped got = clip_uses(device, uses, norm_method, passes);
          check_same(got, clip_uses(cpu, uses, norm_method, passes));
          for (const double v : got.sums) CHECK(std::isfinite(v));
        }
      }
    }
  });
}

TEST_CASE("a loss that no parameter reaches, and one that some do not, count on a GPU") {
  for_each_gpu([](Device device) {
    Setup s(device, 1);
    Clipper clipper(groups_of(s.model, true));
    Tape tape(private_tape);
    clipper.add(tape, sum_per_sample(tape.input(full({3, 2}, 1, Dtype::f32, device))));
    clipper.add_zeros(2);
    CHECK(clipper.statistics().units == 5);
    CHECK(clipper.statistics().loss_sum == 6);
    for (const auto& norms : clipper.statistics().norms) CHECK(norms == std::vector<double>(5));
    for (const double v : flat(clipper.clipped_sums())) CHECK(v == 0);
  });
}

// The k-th allocation of a second physical batch fails: the sum of the first is unchanged, or the
// clipper is broken().
TEST_CASE("a physical batch that runs out of a GPU's memory anywhere is as if never added") {
  for_each_gpu([](Device device) {
    PublicRandom random(6);
    const std::vector<Batch> parts{random_batch(3, random), random_batch(4, random)};
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      Setup s(device, 1);
      Clipper clipper(groups_of(s.model, true), {}, passes);
      const auto add = [&](const Batch& part) {
        Tape tape(private_tape);
        clipper.add(tape, s.plain(tape, on_device(device, tensors(part))));
      };
      add(parts[0]);
      add(parts[1]);
      const std::vector<double> expected = flat(clipper.clipped_sums());
      std::int64_t failures = 0;
      for (std::int64_t k = 0;; ++k) {
        clipper.discard();
        add(parts[0]);
        std::optional<FailingMemory> memory(std::in_place, k, device);
        try {
          add(parts[1]);
        } catch (const OutOfMemory&) {
        }
        const bool failed = memory->failed();
        memory.reset();
        if (!failed) break;
        ++failures;
        if (clipper.broken()) continue;
        if (clipper.statistics().units == 3) add(parts[1]);
        if (flat(clipper.clipped_sums()) != expected) FAIL("allocation " << k);
      }
      CHECK(failures > 50);
    }
  });
}

namespace {

struct Waits {
  std::int64_t ones, twos;
};

// The number of synchronizations while a network of this many layers is clipped.
Waits waits_for(Device device, int layers) {
  nn::Sequential model;
  for (int k = 0; k < layers; ++k) model.add(nn::Linear(6, 6));
  model.to(device);
  Waits waits{};
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    Clipper clipper(flat_group(model.parameters(), 1), {}, passes);
    Tape tape(private_tape);
    const Var loss = sum_per_sample(model(tape.input(full({4, 6}, 0.1, Dtype::f32, device))));
    const std::int64_t before = pretended_counts()->waits;
    clipper.add(tape, loss);
    (passes == ClipPasses::one ? waits.ones : waits.twos) = pretended_counts()->waits - before;
  }
  return waits;
}

}  // namespace

TEST_CASE("the host waits once for a physical batch, whatever the number of parameters") {
  if (!pretended_counts()) return;
  for_each_gpu([](Device device) {
    for (const int layers : {1, 4, 16}) {
      const Waits waits = waits_for(device, layers);
      CHECK(waits.ones == 1);
      CHECK(waits.twos == 1);
    }
  });
}
