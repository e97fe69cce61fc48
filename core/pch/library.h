// Precompiled header: the standard headers and fmt, which nearly every source includes. It has none
// of the library's own headers, so that a missing include of one still shows. Off with
// -Db_pch=false.
// fmt, up to version 10, optimises itself by a pragma, which g++ would keep in a precompiled header for all that follows:
// without optimisation intrinsics would take the wrong form.
#define FMT_GCC_PRAGMA(pragma)
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
