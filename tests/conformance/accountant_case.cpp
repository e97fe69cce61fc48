#include <cmath>

#include "sotto/dp/analytic_gaussian.h"
#include "sotto/dp/calibration.h"
#include "sotto/dp/gdp.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

namespace {

// A row for an accountant that composes the phases or is calibrated to the target.
double composed_row(const Json& row, const std::string& query, const NewAccountant& fresh) {
  if (query == "sigma") {
    return calibrate_noise_multiplier({.epsilon = field<double>(row, "epsilon"),
                                       .delta = field<double>(row, "delta"),
                                       .sampling_rate = field<double>(row, "q"),
                                       .steps = field<std::int64_t>(row, "steps")},
                                      fresh);
  }
  const auto accountant = fresh();
  for (const Json& phase : field<std::vector<Json>>(row, "phases")) {
    const auto q = field<double>(phase, "q");
    accountant->compose({.noise_multiplier = field<double>(phase, "sigma"),
                         .sampling = q == 1 ? Sampling::full_batch : Sampling::poisson,
                         .sampling_rate = q},
                        field<std::int64_t>(phase, "steps"));
  }
  return query == "epsilon" ? accountant->epsilon(field<double>(row, "delta"))
                            : accountant->delta(field<double>(row, "epsilon"));
}

NewAccountant rdp_of(const Json& table, const Json& row) {
  return by_rdp(
      field<std::vector<double>>(field<Json>(table, "orders"), field<std::string>(row, "orders")));
}

Relation relation_of(const Json& row) {
  const auto relation = field<std::string>(row, "relation");
  if (relation == "replace_one") return Relation::replace_one;
  if (relation != "add_or_remove_one") throw Malformed("relation is " + relation);
  return Relation::add_or_remove_one;
}

// Phases of the central limit combine as the root of the sum of squares.
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

// Several phases are one whose precision 1 / sigma^2 is the sum of theirs.
double gaussian_row(const Json& row, const std::string& query) {
  if (query == "sigma") {
    return gaussian_noise_multiplier(field<double>(row, "epsilon"), field<double>(row, "delta"),
                                     field<std::int64_t>(row, "steps"));
  }
  const auto phases = field<std::vector<Json>>(row, "phases");
  double precision = 0;
  for (const Json& phase : phases) {
    const auto sigma = field<double>(phase, "sigma");
    precision += static_cast<double>(field<std::int64_t>(phase, "steps")) / (sigma * sigma);
  }
  const double sigma = 1 / std::sqrt(precision);
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
  if (accountant == "tight") return composed_row(row, query, by_pld(relation_of(row)));
  if (accountant != "rdp" && accountant != "gaussian") {
    throw Malformed("accountant is " + accountant);
  }
  if (relation_of(row) != Relation::add_or_remove_one) {
    throw Skip("the " + accountant + " accountant does not know exchanged records");
  }
  return accountant == "rdp" ? composed_row(row, query, rdp_of(table, row))
                             : gaussian_row(row, query);
}

}  // namespace sotto::conformance
