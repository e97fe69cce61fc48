// What nearly every unit test includes, compiled once for all of them. Off with -Db_pch=false.
#include "precompiled/library.h"
#include "sotto/sotto.h"
#include "tests/catch.h"
