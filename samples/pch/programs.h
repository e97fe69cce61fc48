// The precompiled header of the samples and the conformance runner: what nearly every source of theirs includes, and as
// in library.h no header of ours. Off with -Db_pch=false.
#include <nlohmann/json.hpp>

#include "core/pch/library.h"
