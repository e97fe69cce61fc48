// What nearly every source of the samples and of the runner of conformance cases includes, compiled
// once for each. Off with -Db_pch=false.
#include <nlohmann/json.hpp>

#include <sotto/sotto.h>
#include "core/pch/library.h"
