// Catch2 in either of the two major versions that distributions package.
#pragma once

#ifdef CATCH_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
