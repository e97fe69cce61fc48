// The interface of accountants: the epsilon and delta that a sequence of releases provably has. An
// accountant refuses releases for which it has no proof. Proofs are in
// docs/appendix/proofs-accounting.md, section 6.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "dp/event.h"

namespace sotto {

// The method by which releases are composed.
enum class AccountantKind {
  pld,  // privacy loss distributions: nearly the smallest epsilon that can be proved
  rdp,  // Renyi divergences: a larger epsilon, for more samplings
  prv,  // privacy loss random variables: as pld, up to about 0.01
};

// The accountant's name: "pld", "rdp" or "prv".
const char* name(AccountantKind kind);
// Parses such a name. Throws std::invalid_argument for any other.
AccountantKind parse_accountant(const std::string& name);

// Why the accountant cannot compose batches of this sampling, and which one can: "the pld
// accountant has no proof for balls_and_bins batches and add_or_remove_one; rdp has one". Empty if
// it can.
std::string unsupported_reason(AccountantKind kind, Sampling sampling,
                               NeighboringRelation relation);

struct SelectionCost;

// Composes releases and answers with the epsilon or delta of all of them. make_accountant() makes
// one; a Ledger's releases are composed by epsilon(ledger, delta).
//
//   const auto accountant = make_accountant();
//   accountant->compose({1.1, Sampling::poisson, 0.01}, 1000);  // noise multiplier, sampling, rate
//   const double epsilon = accountant->epsilon(1e-5);
class Accountant {
 public:
  virtual ~Accountant() = default;

  // Adds `count` releases of one kind to the history. An epoch is charged with its first batch; its
  // further batches (`paid`) are free. Throws std::invalid_argument when a number of the event is
  // out of range or count not in [0, 2^53], when there is no proof (with the text of
  // unsupported_reason()), and when there are more paid batches than the epochs begun so far have.
  void compose(const Event& event, std::int64_t count = 1);
  // The smallest epsilon this accountant can prove for delta in (0, 1): 0 for an empty history,
  // infinity when none can be proved. Throws std::invalid_argument for another delta.
  double epsilon(double delta) const;
  // The smallest delta it can prove for a finite epsilon >= 0. Throws std::invalid_argument for
  // another epsilon.
  double delta(double epsilon) const;
  // Adds the cost of a private selection. Compose the releases of one of its runs as usual
  // (selection_cost). Throws std::invalid_argument for a second one, or a cost below that of a
  // single run.
  void charge_selection(const SelectionCost& cost);
  bool has_selection() const { return mean_runs_ > 1; }  // after charge_selection()
  AccountantKind kind() const { return kind_; }
  // The neighbouring relation that epsilon and delta are for.
  NeighboringRelation relation() const { return relation_; }
  std::string name() const { return sotto::name(kind_); }

 protected:
  Accountant(AccountantKind kind, NeighboringRelation relation)
      : kind_(kind), relation_(relation) {}
  // A copy has the same history and goes on by itself.
  Accountant(const Accountant&) = default;
  Accountant(Accountant&&) = default;
  Accountant& operator=(const Accountant&) = default;
  Accountant& operator=(Accountant&&) = default;

  // Composes count >= 1 releases of a kind to which compose() reduces every sampling: on full
  // batches, on Poisson or fixed-size batches with a rate in (0, 1), or whole epochs of two or more
  // balls_and_bins batches.
  virtual void charge(const Event& event, std::int64_t count) = 0;
  // epsilon() and delta() of the charged releases.
  virtual double charged_epsilon(double delta) const = 0;
  // The smallest delta for this epsilon; an upper bound, rounding included.
  virtual double charged_delta(double epsilon) const = 0;
  // Throws std::invalid_argument unless delta is in (0, 1).
  static void check_delta(double delta);
  // Throws std::invalid_argument unless epsilon is finite and >= 0.
  static void check_epsilon(double epsilon);
  // The probability, at most 1, that a batch was truncated: the releases are this far, in total
  // variation, from those that were charged.
  double truncation_probability() const { return truncation_probability_; }

 private:
  struct Epoch {
    std::int64_t begun = 0, paid = 0;
  };
  void check_paid(const Event& event, std::int64_t count);
  double truncated_epsilon(double delta) const;

  AccountantKind kind_;
  NeighboringRelation relation_;
  double truncation_probability_ = 0;
  double added_epsilon_ = 0, mean_runs_ = 1;  // of a SelectionCost
  std::map<Event, Epoch> epochs_;             // keyed by their first batch
};

// Makes a new accountant at each call, for searches and for ledgers that grow.
using AccountantFactory = std::function<std::unique_ptr<Accountant>()>;

}  // namespace sotto
