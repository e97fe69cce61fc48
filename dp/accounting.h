// Accountants, the epsilon of a ledger, and calibration of noise.
#pragma once

#include "dp/accounting/accountant.h"
#include "dp/accounting/calibration.h"
#include "dp/accounting/gdp.h"
#include "dp/accounting/ledger_epsilon.h"
#include "dp/accounting/make_accountant.h"
#include "dp/accounting/selection_cost.h"
