// Laws that hold for all accountants, for every sampling for which they have a proof.
// File tags: [sanitized]
#include "dp/accounting/accountant.h"

#include <cmath>
#include <limits>
#include <vector>

#include "dp/accounting/analytic_gaussian.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/accounting/make_accountant.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "dp/accounting/rdp/rdp_accountant.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr auto added = NeighboringRelation::add_or_remove_one;
constexpr auto replaced = NeighboringRelation::replace_one;
const std::vector<AccountantKind> kinds = {AccountantKind::pld, AccountantKind::rdp,
                                           AccountantKind::prv};
const std::vector<NeighboringRelation> relations = {added, replaced};

const std::vector<Event> events = {
    {1.5},
    {1.5, Sampling::poisson, 0.01},
    {1.5, Sampling::truncated_poisson, 0.01, 1, false, 1e-9},
    {1.5, Sampling::fixed_size, 0.01},
    {1.5, Sampling::partition, 1, 100},
    {1.5, Sampling::balls_and_bins, 1, 100},
    {1.5, Sampling::cyclic_poisson, 0.01, 100},
    {1.5, Sampling::planned, 1, 100},
};

Event paid(Event event) {
  event.paid = true;
  return event;
}

std::unique_ptr<Accountant> composed(AccountantKind kind, NeighboringRelation relation,
                                     const Event& event, std::int64_t count = 1) {
  auto accountant = make_accountant(kind, relation);
  accountant->compose(event, count);
  return accountant;
}

// Calls f(kind, relation, event) for every supported combination.
template <class Function>
void for_each_proof(const Function& f) {
  for (const AccountantKind kind : kinds) {
    for (const NeighboringRelation relation : relations) {
      for (const Event& event : events) {
        CAPTURE(name(kind), name(event.sampling), relation == replaced);
        if (unsupported_reason(kind, event.sampling, relation).empty()) f(kind, relation, event);
      }
    }
  }
}

}  // namespace

TEST_CASE("an accountant composes what it has a proof for and says who can serve the rest") {
  int proofs = 0;
  for_each_proof([&](AccountantKind kind, NeighboringRelation relation, const Event& event) {
    const double epsilon = composed(kind, relation, event)->epsilon(1e-6);
    CHECK(epsilon > 0);
    CHECK(epsilon < 20);
    ++proofs;
  });
  CHECK(proofs == 37);
  for (const AccountantKind kind : kinds) {
    for (const NeighboringRelation relation : relations) {
      for (const Event& event : events) {
        const std::string reason = unsupported_reason(kind, event.sampling, relation);
        if (reason.empty()) continue;
        CHECK_THROWS_WITH(composed(kind, relation, event), "compose: " + reason);
      }
    }
  }
  CHECK(unsupported_reason(AccountantKind::pld, Sampling::balls_and_bins, added) ==
        "the pld accountant has no proof for balls_and_bins batches and add_or_remove_one; "
        "rdp has one");
  CHECK(
      unsupported_reason(AccountantKind::rdp, Sampling::partition, added) ==
      "the rdp accountant has no proof for partition batches and add_or_remove_one; none has one");
  CHECK_FALSE(unsupported_reason(AccountantKind::rdp, Sampling::fixed_size, added).empty());
  CHECK_FALSE(unsupported_reason(AccountantKind::rdp, Sampling::balls_and_bins, replaced).empty());
}

TEST_CASE("accountants are made by kind, name and relation") {
  for (const AccountantKind kind : kinds) {
    CHECK(parse_accountant(name(kind)) == kind);
    for (const NeighboringRelation relation : relations) {
      const auto accountant = make_accountant(kind, relation);
      CHECK(accountant->kind() == kind);
      CHECK(accountant->name() == name(kind));
      CHECK(accountant->relation() == relation);
    }
  }
  CHECK(make_accountant()->kind() == AccountantKind::pld);
  CHECK(make_accountant()->relation() == added);
  CHECK_THROWS_WITH(parse_accountant("gdp"), "accountant: no accountant is called gdp");
}

TEST_CASE("a replaced record moves a full batch twice as far") {
  for (const AccountantKind kind : kinds) {
    CHECK(composed(kind, replaced, {3}, 5)->epsilon(1e-6) ==
          Approx(composed(kind, added, {1.5}, 5)->epsilon(1e-6)).epsilon(1e-12));
  }
}

TEST_CASE("samplings that come down to others cost the same") {
  for_each_proof([&](AccountantKind kind, NeighboringRelation relation, const Event& event) {
    Event same{event.noise_multiplier};
    if (event.sampling == Sampling::cyclic_poisson) {
      same = {event.noise_multiplier, Sampling::poisson, event.sampling_rate};
    } else if (event.sampling != Sampling::partition && event.sampling != Sampling::planned) {
      return;
    }
    CHECK(composed(kind, relation, event, 3)->epsilon(1e-6) ==
          composed(kind, relation, same, 3)->epsilon(1e-6));
  });
}

TEST_CASE("a rate of 1 and an epoch of one batch are full batches") {
  for_each_proof([&](AccountantKind kind, NeighboringRelation relation, Event event) {
    event.sampling_rate = event.batches = 1;
    event.truncation_probability = 0;
    for (const double sigma : {0.1, 1.0, 30.0}) {
      event.noise_multiplier = sigma;
      const auto accountant = composed(kind, relation, event, 4);
      const auto full = composed(kind, relation, {sigma}, 4);
      CHECK(accountant->epsilon(1e-6) == full->epsilon(1e-6));
      CHECK(accountant->delta(0.7) == full->delta(0.7));
      if (kind == AccountantKind::rdp) continue;
      const double noise = relation == replaced ? sigma / 2 : sigma;
      CHECK(full->epsilon(1e-6) == Approx(gaussian_epsilon(noise, 1e-6, 4)).epsilon(1e-12));
      CHECK(full->delta(0.7) == Approx(gaussian_delta(noise, 0.7, 4)).epsilon(1e-12));
    }
  });
}

TEST_CASE("an epoch is charged with its first batch, and an unfinished one in full") {
  for_each_proof([&](AccountantKind kind, NeighboringRelation relation, const Event& event) {
    if (!in_epochs(event.sampling)) return;
    const auto accountant = composed(kind, relation, event, 2);
    const double epsilon = accountant->epsilon(1e-6);
    accountant->compose(paid(event), 99);
    accountant->compose(paid(event), 50);
    CHECK(accountant->epsilon(1e-6) == epsilon);
    accountant->compose(event);
    CHECK(accountant->epsilon(1e-6) > epsilon);
  });
}

TEST_CASE("paid batches belong to epochs of the same kind that were begun before") {
  for_each_proof([&](AccountantKind kind, NeighboringRelation relation, const Event& event) {
    if (!in_epochs(event.sampling)) return;
    const auto accountant = make_accountant(kind, relation);
    CHECK_THROWS_AS(accountant->compose(paid(event)), std::invalid_argument);
    Event other = event;
    other.noise_multiplier = 2;
    accountant->compose(other, 7);
    CHECK_THROWS_AS(accountant->compose(paid(event)), std::invalid_argument);
    accountant->compose(event, 2);
    accountant->compose(paid(event), 198);
    CHECK_THROWS_AS(accountant->compose(paid(event)), std::invalid_argument);
    accountant->compose(event);
    accountant->compose(paid(event), 99);
    CHECK_THROWS_AS(accountant->compose(paid(event)), std::invalid_argument);
  });
  const auto accountant = composed(AccountantKind::pld, added, {1.5, Sampling::planned, 1, 10});
  CHECK_THROWS_WITH(accountant->compose({1.5, Sampling::planned, 1, 10, true}, 10),
                    "compose: 10 paid planned batches, but 1 epochs of 10 batches were begun");
}

TEST_CASE("truncation costs its probability, in delta and in epsilon") {
  const double cut = 1e-11;
  const std::int64_t steps = 100;
  for (const AccountantKind kind : kinds) {
    if (kind == AccountantKind::prv) continue;  // takes long; the base class does it
    for (const NeighboringRelation relation : relations) {
      const auto poisson = composed(kind, relation, {1.5, Sampling::poisson, 0.01}, steps);
      const auto truncated =
          composed(kind, relation, {1.5, Sampling::truncated_poisson, 0.01, 1, false, cut}, steps);
      for (const double epsilon : {0.0, 0.5, 3.0}) {
        const double more = (1 + std::exp(epsilon)) * cut * static_cast<double>(steps);
        CHECK(truncated->delta(epsilon) == Approx(poisson->delta(epsilon) + more).epsilon(1e-12));
      }
      for (const double delta : {1e-3, 1e-5, 1e-6}) {
        const double epsilon = truncated->epsilon(delta);
        CHECK(epsilon >= poisson->epsilon(delta));
        CHECK(truncated->delta(epsilon) <= delta * (1 + 1e-9));
        CHECK(truncated->delta(epsilon * 0.999) > delta * (kind == AccountantKind::rdp ? 1 : 0.99));
      }
      CHECK(truncated->epsilon(2e-9) == infinity);
      CHECK(truncated->delta(1000) == 1);
      truncated->compose({1.5, Sampling::truncated_poisson, 0, 1, false, 1}, 5);
      CHECK(truncated->epsilon(0.5) == infinity);
      CHECK(truncated->delta(0) == 1);
    }
  }
  PldAccountant pld;
  pld.compose({1.5, Sampling::truncated_poisson, 0.01, 1, false, cut}, steps);
  const PldAccountant& bounds = pld;
  CHECK(bounds.epsilon(1e-5, Bound::lower) <= bounds.epsilon(1e-5));
  CHECK(bounds.epsilon(1e-5, Bound::lower) >= 0.9 * bounds.epsilon(1e-5));
  CHECK(bounds.delta(1, Bound::lower) <= bounds.delta(1));
}

TEST_CASE("a ledger is accounted for by the requested accountant") {
  Ledger ledger;
  const Event pass{1.5, Sampling::balls_and_bins, 1, 3};
  for (std::uint64_t draw = 0; draw < 6; ++draw) {
    ledger.record(draw % 3 == 0 ? pass : paid(pass), draw);
  }
  CHECK(epsilon(ledger, 1e-5, accountant_factory(AccountantKind::rdp)) ==
        composed(AccountantKind::rdp, added, pass, 2)->epsilon(1e-5));
  CHECK_THROWS_WITH(epsilon(ledger, 1e-5),
                    "compose: the pld accountant has no proof for balls_and_bins batches and "
                    "add_or_remove_one; rdp has one");
}

// Compares epsilon and delta of one, two and four times as many releases, and with less noise or a
// smaller delta.
TEST_CASE("answers are numbers that no argument moves the wrong way, over the whole range",
          "[nightly]") {
  for_each_proof([&](AccountantKind kind, NeighboringRelation relation, Event event) {
    if (kind == AccountantKind::prv)
      return;  // takes long; tests/dp/accounting/pld/prv_accountant_test.cpp has corners
    const bool rate = has_rate(event.sampling), pld = kind == AccountantKind::pld;
    const bool numerical = pld && rate;  // accurate to the gap between its bounds
    const double slack = numerical ? 1 + 2e-3 : 1 + 1e-9, tiny = 1e-9;
    event.truncation_probability = 0;
    if (event.sampling == Sampling::truncated_poisson) return;  // is Poisson without truncation
    if (event.sampling == Sampling::cyclic_poisson) return;     // is Poisson
    for (const double q : rate ? std::vector<double>{1e-9, 1e-3, 0.5} : std::vector<double>{1}) {
      for (const double sigma : {0.1, 1.0, 1000.0}) {
        for (const std::int64_t steps : {std::int64_t{1}, std::int64_t{100000000}}) {
          if (numerical && steps > 1)
            continue;  // tests/dp/accounting/pld/pld_accountant_test.cpp has some, at a second each
          event.noise_multiplier = sigma;
          if (rate) event.sampling_rate = q;
          const auto accountant = composed(kind, relation, event, steps);
          CAPTURE(q, sigma, steps);
          const double loose = accountant->epsilon(0.1), strict = accountant->epsilon(1e-15);
          CHECK(loose >= 0);
          CHECK(strict < infinity);
          CHECK(loose <= strict * slack);
          const double delta = accountant->delta(numerical ? q : 1);
          CHECK(delta >= 0);
          CHECK(delta <= 1);
          Event noisier = event;
          noisier.noise_multiplier = 1.1 * sigma;
          CHECK(composed(kind, relation, noisier, steps)->epsilon(1e-15) <= strict * slack + tiny);
          CHECK(composed(kind, relation, event, 2 * steps)->epsilon(1e-15) * slack >= strict);
        }
      }
    }
  });
}

TEST_CASE("numbers out of range are errors for every accountant") {
  for (const AccountantKind kind : kinds) {
    const auto accountant = make_accountant(kind);
    for (const double wrong : {0.0, 1.0, -1.0, std::nan("")}) {
      CHECK_THROWS_AS(accountant->epsilon(wrong), std::invalid_argument);
    }
    for (const double wrong : {-1.0, infinity, std::nan("")}) {
      CHECK_THROWS_AS(accountant->delta(wrong), std::invalid_argument);
    }
    CHECK_THROWS_AS(accountant->compose({1}, -1), std::invalid_argument);
    CHECK_THROWS_AS(accountant->compose({1}, (std::int64_t{1} << 53) + 1), std::invalid_argument);
    accountant->compose({0});
    CHECK(accountant->epsilon(1e-5) == infinity);
    CHECK(accountant->delta(3) == 1);
  }
}
