// The precompiled header of the tests: as library.h without headers of the library. Off with -Db_pch=false.
#include "core/pch/library.h"
#include "tests/support/catch.h"
