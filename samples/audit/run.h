// One audited training run.
#pragma once

#include <functional>
#include <vector>

#include "dp/audit/audit.h"
#include "dp/audit/clopper_pearson_audit.h"
#include "nn/data/dataset.h"
#include "samples/audit/options.h"

namespace sotto::audit {

// The findings of an audit. Scores and coins are NOT private: they reveal what the noise should
// hide.
struct AuditFindings {
  double noise_multiplier = 0;
  double sampling_rate = 0;
  double accountant = 0;  // epsilon by privacy loss distributions, at the options' delta
  double claim = 0;       // the epsilon that is judged
  std::vector<double> scores;
  std::vector<bool> included;
  OneRunAudit one_run;
  ClopperPearsonAudit trade_off;
  double seconds = 0;

  // The bound that needs no assumption is above the claim.
  bool contradicted() const { return one_run.epsilon > claim; }
  // A bound for independent canaries is above the claim; the Gaussian one counts without sampling
  // only.
  bool doubtful() const {
    return trade_off.epsilon > claim || (sampling_rate == 1 && trade_off.gaussian_epsilon > claim);
  }
};

// Reads the data from the folder or draws them. Throws SystemFailure when files are missing or
// damaged.
Dataset load_data(const Options& options);

// Trains and judges. Throws std::invalid_argument, before the first step, for options that do not
// fit the data or the network.
AuditFindings run(const Options& options, const Dataset& data);

}  // namespace sotto::audit
