// The headers that nearly every unit test includes, precompiled once. -Db_pch=false turns this off.
#include "core/pch/library.h"
#include "sotto.h"
#include "tests/support/catch.h"
