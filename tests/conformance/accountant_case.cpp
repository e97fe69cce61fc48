#include <cmath>

#include "sotto/dp/analytic_gaussian.h"
#include "sotto/dp/calibration.h"
#include "sotto/dp/rdp_accountant.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

namespace {

double rdp_row(const Json& table, const Json& row, const std::string& query) {
  const auto orders =
      field<std::vector<double>>(field<Json>(table, "orders"), field<std::string>(row, "orders"));
  if (query == "sigma") {
    return calibrate_noise_multiplier({.epsilon = field<double>(row, "epsilon"),
                                       .delta = field<double>(row, "delta"),
                                       .sampling_rate = field<double>(row, "q"),
                                       .steps = field<std::int64_t>(row, "steps")},
                                      orders);
  }
  RdpAccountant accountant(orders);
  for (const Json& phase : field<std::vector<Json>>(row, "phases")) {
    const auto q = field<double>(phase, "q");
    accountant.compose({.noise_multiplier = field<double>(phase, "sigma"),
                        .sampling = q == 1 ? Sampling::full_batch : Sampling::poisson,
                        .sampling_rate = q},
                       field<std::int64_t>(phase, "steps"));
  }
  return query == "epsilon" ? accountant.epsilon(field<double>(row, "delta"))
                            : accountant.delta(field<double>(row, "epsilon"));
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
  if (accountant == "gdp") throw Skip("the library has no central-limit accountant");
  if (accountant == "tight") throw Skip("the library has no numerical accountant");
  if (accountant != "rdp" && accountant != "gaussian") {
    throw Malformed("accountant is " + accountant);
  }
  if (field<std::string>(row, "relation") != "add_or_remove_one") {
    throw Skip("the library has no accountant for exchanged records");
  }
  return accountant == "rdp" ? rdp_row(table, row, query) : gaussian_row(row, query);
}

}  // namespace sotto::conformance
