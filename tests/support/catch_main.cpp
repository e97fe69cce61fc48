// The main function of every test under Catch2 2.x; version 3 has its own.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
