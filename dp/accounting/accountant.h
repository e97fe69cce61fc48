// The seam for accountants: what a sequence of releases proves about epsilon and delta. What an
// accountant has no proof for, it refuses. Proofs in docs/accounting.md, section 6.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "dp/event.h"

namespace sotto {

enum class AccountantKind {
  pld,  // privacy loss distributions: nearly the least epsilon that can be proved
  rdp,  // Renyi divergences: a larger one, for more samplings
  prv,  // privacy loss random variables: as pld, up to about 0.01
};

// "pld", "rdp", "prv".
const char* name(AccountantKind kind);
// The kind of that name. Throws std::invalid_argument when there is none.
AccountantKind parse_accountant(const std::string& name);

// Why the accountant cannot compose batches drawn like this, and which ones can: "the pld
// accountant has no proof for balls_and_bins batches and add_or_remove_one; rdp has one". Empty
// where it has a proof.
std::string unsupported_reason(AccountantKind kind, Sampling sampling,
                               NeighboringRelation relation);

class Accountant {
 public:
  virtual ~Accountant() = default;

  // Adds `count` releases of one kind after what was composed before. A batch that is paid for
  // costs nothing; passes are charged with their first batch. Throws std::invalid_argument when a
  // number of the event is out of range or count not in [0, 2^53], when there is no proof (the text
  // of unsupported_reason()), and when more batches are paid for than the passes begun so far have.
  void compose(const Event& event, std::int64_t count = 1);
  // The smallest epsilon this accountant can prove for delta in (0, 1); 0 for an empty history,
  // infinity when nothing can be proved. Throws std::invalid_argument for another delta.
  double epsilon(double delta) const;
  // The smallest delta it can prove for a finite epsilon >= 0; throws for another epsilon.
  double delta(double epsilon) const;
  AccountantKind kind() const { return kind_; }
  NeighboringRelation relation() const { return relation_; }
  std::string name() const { return sotto::name(kind_); }

 protected:
  Accountant(AccountantKind kind, NeighboringRelation relation)
      : kind_(kind), relation_(relation) {}
  Accountant(const Accountant&) = default;
  Accountant(Accountant&&) = default;
  Accountant& operator=(const Accountant&) = default;
  Accountant& operator=(Accountant&&) = default;

  // What all samplings come down to: count >= 1 releases on full batches, or on Poisson or fixed
  // size batches with a rate in (0, 1), or whole passes of two or more balls_and_bins batches.
  virtual void charge(const Event& event, std::int64_t count) = 0;
  // epsilon() and delta() of what was charged.
  virtual double charged_epsilon(double delta) const = 0;
  virtual double charged_delta(double epsilon) const = 0;
  static void check_delta(double delta);
  static void check_epsilon(double epsilon);
  // The probability that a batch lost records: releases are this far, in total variation, from
  // those that were charged. At most 1.
  double cut() const { return cut_; }

 private:
  struct Pass {
    std::int64_t begun = 0, paid = 0;
  };
  void check_paid(const Event& event, std::int64_t count);

  AccountantKind kind_;
  NeighboringRelation relation_;
  double cut_ = 0;
  std::map<Event, Pass> passes_;  // by their first batch
};

// Makes an accountant with an empty history.
using NewAccountant = std::function<std::unique_ptr<Accountant>()>;
NewAccountant make_accountant(
    AccountantKind kind = AccountantKind::pld,
    NeighboringRelation relation = NeighboringRelation::add_or_remove_one);

}  // namespace sotto
