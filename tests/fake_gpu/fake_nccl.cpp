// A substitute for NCCL whose ranks are threads of one process with pretended GPUs. Bytes leave
// when the sender's GPU comes to them, and arrive when the receiver's does and all of the group are
// there; the GPUs go on by themselves, as real ones. It refuses what would be an error or a hang
// with NCCL: calls outside of a group, memory of another GPU, and counts that differ.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/cuda/nccl.h"
#include "tests/fake_gpu/pretended_stream.h"

namespace sotto {

namespace {

constexpr int invalid_argument = 4, invalid_usage = 5, remote_error = 6;

std::atomic<int> failing_rank = -1;
std::atomic<std::int64_t> failing_group = 0;
std::atomic<std::int64_t> bytes_moved = 0;

// All ranks of one id.
struct World {
  std::mutex mutex;
  std::condition_variable joined;
  int ranks_there = 0;
  std::vector<PretendedStream*> streams;                              // by rank, once known
  std::map<std::pair<int, int>, std::deque<std::vector<char>>> sent;  // by sender and receiver
};

struct Communicator {
  std::shared_ptr<World> world;
  int rank = 0;
  std::int64_t groups = 0;
  std::atomic<int> error = nccl_success;
  std::atomic<bool> aborted = false;
};
using Handle = std::shared_ptr<Communicator>;

struct Part {
  bool sends = false;
  char* memory = nullptr;
  std::size_t bytes = 0;
  int peer = 0;
};

// The group of this thread.
struct Group {
  int depth = 0;
  Handle communicator;
  PretendedStream* stream = nullptr;
  std::vector<Part> parts;
};
thread_local Group group;

std::map<std::string, std::shared_ptr<World>>& worlds() {
  static std::map<std::string, std::shared_ptr<World>> worlds;
  return worlds;
}
std::mutex worlds_mutex;

int add(const Part& part, int type, void* communicator, void* stream) {
  if (group.depth == 0 || type != nccl_uint8) return invalid_usage;
  group.communicator = *static_cast<Handle*>(communicator);
  group.stream = static_cast<PretendedStream*>(stream);
  if (part.peer == group.communicator->rank || !group.stream->use(part.memory, part.bytes))
    return invalid_argument;
  group.parts.push_back(part);
  return nccl_success;
}

// Lets the GPUs of ranks whose bytes are missing go on. Returns true if none is missing.
bool all_there(const Communicator& here, const std::vector<Part>& parts) {
  if (here.aborted) return true;
  bool all = true;
  for (const Part& part : parts) {
    if (part.sends) continue;
    PretendedStream* sender = nullptr;
    {
      const std::lock_guard lock(here.world->mutex);
      if (!here.world->sent[{part.peer, here.rank}].empty()) continue;
      sender = here.world->streams[static_cast<std::size_t>(part.peer)];
    }
    if (sender != nullptr) sender->advance();
    const std::lock_guard lock(here.world->mutex);
    all = all && !here.world->sent[{part.peer, here.rank}].empty();
  }
  return all;
}

void send_all(const Communicator& here, const std::vector<Part>& parts) {
  const std::lock_guard lock(here.world->mutex);
  for (const Part& part : parts) {
    if (!part.sends) continue;
    here.world->sent[{here.rank, part.peer}].emplace_back(part.memory, part.memory + part.bytes);
    bytes_moved += static_cast<std::int64_t>(part.bytes);
  }
}

void receive_all(Communicator& here, const std::vector<Part>& parts) {
  if (here.aborted) return;
  const std::lock_guard lock(here.world->mutex);
  for (const Part& part : parts) {
    if (part.sends) continue;
    auto& letters = here.world->sent[{part.peer, here.rank}];
    const std::vector<char> bytes = std::move(letters.front());
    letters.pop_front();
    if (bytes.size() != part.bytes) {
      here.error = invalid_argument;
    } else {
      std::memcpy(part.memory, bytes.data(), bytes.size());
    }
  }
}

int run(Group whole) {
  if (whole.parts.empty()) return nccl_success;
  const Handle here = whole.communicator;
  if (here->aborted) return invalid_usage;
  {
    const std::lock_guard lock(here->world->mutex);
    here->world->streams[static_cast<std::size_t>(here->rank)] = whole.stream;
  }
  if (here->rank == failing_rank && here->groups++ == failing_group) {
    // As if the network had gone: NCCL's work never ends, and its error comes by itself.
    here->error = remote_error;
    whole.stream->add_when([here] { return here->aborted.load(); }, [] {});
    return nccl_success;
  }
  const auto parts = std::make_shared<const std::vector<Part>>(std::move(whole.parts));
  whole.stream->add_when([] { return true; }, [here, parts] { send_all(*here, *parts); });
  whole.stream->add_when([here, parts] { return all_there(*here, *parts); },
                         [here, parts] { receive_all(*here, *parts); });
  return nccl_success;
}

}  // namespace

}  // namespace sotto

using namespace sotto;

extern "C" {

int ncclGetVersion(int* version) {
  *version = 22809;
  return nccl_success;
}

int ncclGetUniqueId(NcclId* id) {
  static std::atomic<int> made = 0;
  const std::string text = "pretended " + std::to_string(made++);
  *id = {};
  std::memcpy(id->bytes, text.data(), text.size());
  return nccl_success;
}

// Returns when all ranks have called it.
int ncclCommInitRank(void** communicator, int ranks, NcclId id, int rank) {
  std::shared_ptr<World> world;
  {
    const std::lock_guard lock(worlds_mutex);
    auto& found = worlds()[std::string(id.bytes, sizeof id.bytes)];
    if (!found) found = std::make_shared<World>();
    world = found;
  }
  std::unique_lock lock(world->mutex);
  world->streams.resize(static_cast<std::size_t>(ranks));
  ++world->ranks_there;
  world->joined.notify_all();
  world->joined.wait(lock, [&] { return world->ranks_there == ranks; });
  const auto made = std::make_shared<Communicator>();
  made->world = world;
  made->rank = rank;
  *communicator = new Handle(made);
  return nccl_success;
}

int ncclCommAbort(void* communicator) {
  auto* const handle = static_cast<Handle*>(communicator);
  (*handle)->aborted = true;
  delete handle;
  return nccl_success;
}

int ncclCommGetAsyncError(void* communicator, int* error) {
  *error = (*static_cast<Handle*>(communicator))->error;
  return nccl_success;
}

int ncclSend(const void* from, std::size_t count, int type, int to, void* communicator,
             void* stream) {
  auto* const memory = const_cast<char*>(static_cast<const char*>(from));
  return add({true, memory, count, to}, type, communicator, stream);
}

int ncclRecv(void* to, std::size_t count, int type, int from, void* communicator, void* stream) {
  return add({false, static_cast<char*>(to), count, from}, type, communicator, stream);
}

int ncclGroupStart() {
  ++group.depth;
  return nccl_success;
}

int ncclGroupEnd() {
  if (group.depth == 0) return invalid_usage;
  if (--group.depth > 0) return nccl_success;
  return run(std::exchange(group, Group{}));
}

const char* ncclGetErrorString(int error) {
  return error == remote_error ? "remote process exited or there was a network error"
                               : "invalid argument or usage";
}

// The bytes that were sent since the process began.
std::int64_t sotto_pretended_nccl_bytes() { return bytes_moved; }

// Breaks the network of a rank at its group with this number, from 0; rank -1: of none.
void sotto_pretended_nccl_fail(int rank, std::int64_t number) {
  failing_rank = rank;
  failing_group = number;
}

}  // extern "C"
