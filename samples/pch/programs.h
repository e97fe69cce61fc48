// The precompiled header of the samples and the conformance runner: includes that nearly every
// source of theirs has. Off with -Db_pch=false.
#include <nlohmann/json.hpp>

#include <sotto/sotto.h>
#include "core/pch/library.h"
