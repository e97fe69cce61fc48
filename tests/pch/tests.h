// What nearly every unit test includes, compiled once for all of them. Off with -Db_pch=false.
#include "core/pch/library.h"
#include "sotto.h"
#include "tests/support/catch.h"
