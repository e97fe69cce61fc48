// What nearly every source of the runner of conformance cases includes, compiled once. Off with
// -Db_pch=false.
#include <nlohmann/json.hpp>

#include "precompiled/library.h"
#include "sotto/sotto.h"
