// The memory of a device: its allocator, limits, and the bytes in use.
#pragma once

#include "core/allocator/allocator.h"
#include "core/allocator/memory_usage.h"
