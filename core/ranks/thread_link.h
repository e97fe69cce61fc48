// Links between the threads of one process.
#pragma once

#include <memory>

#include "core/ranks/link.h"
#include "core/ranks/thread_ranks.h"

namespace sotto {

// The place where ranks leave messages for each other.
class ThreadHub;

std::shared_ptr<ThreadHub> make_thread_hub(int size, const ThreadRanksOptions& options);
std::unique_ptr<Link> make_thread_link(std::shared_ptr<ThreadHub> hub, int rank);

}  // namespace sotto
