// Tables: their schemas, and readers of CSV files.
#pragma once

#include "nn/data/tables/schema_guess.h"
#include "nn/data/tables/table_reader.h"
#include "nn/data/tables/table_schema.h"
