// The page of an audit: one self-contained HTML file, and the same facts as JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "samples/audit/run.h"

namespace sotto::audit {

// Returns "ε ≥ 1.2 with 95 % confidence, claimed: ε = 8 (δ = 1e-05): no contradiction".
std::string verdict(const AuditFindings& found);

// Returns a whole page: UTF-8, well-formed as XML.
std::string to_html(const Options& options, const AuditFindings& found);

nlohmann::json to_json(const Options& options, const AuditFindings& found);

}  // namespace sotto::audit
