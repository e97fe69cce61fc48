// Catch2 under either of the two major versions that distributions carry.
#pragma once

#ifdef CATCH_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
