#include <algorithm>
#include <cmath>

#include "dp/accounting/analytic_gaussian.h"
#include "dp/accounting/calibration.h"
#include "dp/accounting/gdp.h"
#include "dp/accounting/rdp/rdp.h"
#include "dp/accounting/rdp/rdp_accountant.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

namespace {

Event batch_of(double q) {
  return {.sampling = q == 1 ? Sampling::full_batch : Sampling::poisson, .sampling_rate = q};
}

// A row for an accountant that composes the phases or is calibrated to the target.
double composed_row(const Json& row, const std::string& query, const AccountantFactory& fresh) {
  if (query == "sigma") {
    return calibrate_noise_multiplier({.epsilon = field<double>(row, "epsilon"),
                                       .delta = field<double>(row, "delta"),
                                       .batch = batch_of(field<double>(row, "q")),
                                       .steps = field<std::int64_t>(row, "steps")},
                                      fresh);
  }
  const auto accountant = fresh();
  for (const Json& phase : field<std::vector<Json>>(row, "phases")) {
    Event event = batch_of(field<double>(phase, "q"));
    event.noise_multiplier = field<double>(phase, "sigma");
    accountant->compose(event, field<std::int64_t>(phase, "steps"));
  }
  return query == "epsilon" ? accountant->epsilon(field<double>(row, "delta"))
                            : accountant->delta(field<double>(row, "epsilon"));
}

NeighboringRelation relation_of(const Json& row) {
  const auto relation = field<std::string>(row, "relation");
  if (relation == "replace_one") return NeighboringRelation::replace_one;
  if (relation != "add_or_remove_one") throw Malformed("relation is " + relation);
  return NeighboringRelation::add_or_remove_one;
}

// Opacus' conversion of divergences: without the total variation bound, and without the lower limit
// of 0 of RdpAccountant.
class OpacusAccountant final : public Accountant {
 public:
  OpacusAccountant(const std::vector<double>& orders, NeighboringRelation relation)
      : Accountant(AccountantKind::rdp, relation), orders_(orders), rdp_(orders.size()) {}

 private:
  void charge(const Event& event, std::int64_t count) override {
    const double distance = relation() == NeighboringRelation::replace_one ? 2 : 1;
    const auto curve = rdp_curve(event.sampling_rate, event.noise_multiplier / distance, orders_);
    for (std::size_t i = 0; i < rdp_.size(); ++i) rdp_[i] += static_cast<double>(count) * curve[i];
  }
  double charged_epsilon(double delta) const override {
    double min = HUGE_VAL;
    for (std::size_t i = 0; i < rdp_.size(); ++i) {
      const double a = orders_[i];
      min = std::min(min, rdp_[i] + std::log1p(-1 / a) - std::log(delta * a) / (a - 1));
    }
    return min;
  }
  double charged_delta(double) const override { throw Malformed("delta of Opacus' orders"); }

  std::vector<double> orders_, rdp_;
};

AccountantFactory rdp_of(const Json& table, const Json& row) {
  const auto name = field<std::string>(row, "orders");
  const auto orders = field<std::vector<double>>(field<Json>(table, "orders"), name);
  return [=, relation = relation_of(row)]() -> std::unique_ptr<Accountant> {
    if (name == "opacus") return std::make_unique<OpacusAccountant>(orders, relation);
    return std::make_unique<RdpAccountant>(orders, relation);
  };
}

// In the central limit, phases combine as the root of the sum of squares.
double gdp_row(const Json& row, const std::string& query) {
  const auto sampling = field<std::string>(row, "sampling");
  if (sampling != "poisson" && sampling != "uniform") throw Malformed("sampling is " + sampling);
  const auto limit = sampling == "poisson" ? gdp_poisson : gdp_fixed_size;
  double mu = 0;
  for (const Json& phase : field<std::vector<Json>>(row, "phases")) {
    mu = std::hypot(mu, limit(field<double>(phase, "q"), field<double>(phase, "sigma"),
                              field<std::int64_t>(phase, "steps")));
  }
  if (query == "sigma") throw Skip("the central limit is not calibrated");
  return query == "epsilon" ? gdp_epsilon(mu, field<double>(row, "delta"))
                            : gdp_delta(mu, field<double>(row, "epsilon"));
}

// Several phases equal one whose precision 1 / sigma^2 is the sum of theirs. A replaced record
// moves the sum twice as far as an added or removed one.
double gaussian_row(const Json& row, const std::string& query) {
  const double distance = relation_of(row) == NeighboringRelation::replace_one ? 2 : 1;
  if (query == "sigma") {
    return distance * gaussian_noise_multiplier(field<double>(row, "epsilon"),
                                                field<double>(row, "delta"),
                                                field<std::int64_t>(row, "steps"));
  }
  const auto phases = field<std::vector<Json>>(row, "phases");
  double precision = 0;
  for (const Json& phase : phases) {
    const auto sigma = field<double>(phase, "sigma");
    precision += static_cast<double>(field<std::int64_t>(phase, "steps")) / (sigma * sigma);
  }
  const double sigma = 1 / (distance * std::sqrt(precision));
  return query == "epsilon" ? gaussian_epsilon(sigma, field<double>(row, "delta"))
                            : gaussian_delta(sigma, field<double>(row, "epsilon"));
}

}  // namespace

double run_accountant_row(const Json& table, const Json& row) {
  const auto accountant = field<std::string>(row, "accountant");
  const auto query = field<std::string>(row, "query");
  if (query != "epsilon" && query != "delta" && query != "sigma") {
    throw Malformed("query is " + query);
  }
  if (accountant == "gdp") return gdp_row(row, query);
  if (accountant == "tight")
    return composed_row(row, query, accountant_factory(AccountantKind::pld, relation_of(row)));
  if (accountant != "rdp" && accountant != "gaussian") {
    throw Malformed("accountant is " + accountant);
  }
  return accountant == "rdp" ? composed_row(row, query, rdp_of(table, row))
                             : gaussian_row(row, query);
}

}  // namespace sotto::conformance
