// Audits: lower bounds on the epsilon of a training.
#pragma once

#include "dp/audit/audit.h"
#include "dp/audit/canaries.h"
#include "dp/audit/clopper_pearson_audit.h"
