#include "core/ranks/collectives.h"

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>

#include "core/ranks/host_name.h"
#include "core/ranks/rank_failure.h"

namespace sotto {

namespace {

constexpr std::string_view unknown_type = "an exception of an unknown type";

enum class Outcome : char { result, invalid_argument, system_failure, other_error };

Outcome kind_of(const std::exception& error) {
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr)
    return Outcome::invalid_argument;
  return dynamic_cast<const SystemFailure*>(&error) != nullptr ? Outcome::system_failure
                                                               : Outcome::other_error;
}

template <class Error>
class Shared final : public Error, public OnEveryRank {
 public:
  using Error::Error;
};

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// The end of one rank's call.
struct End {
  static auto fields(auto& self) { return std::tie(self.outcome, self.bytes); }
  bool failed() const { return outcome != Outcome::result; }
  std::string message() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  Outcome outcome = Outcome::result;
  std::vector<std::byte> bytes{};  // the result, or the message of the error
};

// Throws the error, if there was one.
void check_end(const End& end) {
  if (end.outcome == Outcome::invalid_argument) throw Shared<std::invalid_argument>(end.message());
  if (end.outcome == Outcome::system_failure) throw Shared<SystemFailure>(end.message());
  if (end.outcome == Outcome::other_error) throw Shared<std::runtime_error>(end.message());
}

// A call of `f`. An error whose type check_end() does not keep is kept for this rank.
struct Call {
  End end;
  std::exception_ptr error = nullptr;

  explicit Call(const std::function<std::vector<std::byte>()>& f) {
    try {
      end.bytes = f();
    } catch (const RankFailure&) {
      throw;
    } catch (const std::exception& thrown) {
      const bool plain = typeid(thrown) == typeid(std::invalid_argument) ||
                         typeid(thrown) == typeid(SystemFailure);
      if (!plain) error = std::current_exception();
      end = {kind_of(thrown), bytes_of(thrown.what())};
    } catch (...) {
      error = std::current_exception();
      end = {Outcome::other_error, bytes_of(unknown_type)};
    }
  }
};

// The result of rank 0's call. A message that is none ends the run.
std::vector<std::byte> result_of(Ranks& ranks, const std::vector<std::byte>& message) {
  End end;
  abort_on_error(ranks, [&] {
    end = unpack<End>(message);
    check_end(end);
  });
  return std::move(end.bytes);
}

// The error of all from the ends of each: the first one, with its rank unless all are the same.
End first_error(const std::vector<std::pair<std::string, End>>& ends) {
  const auto first =
      std::ranges::find_if(ends, [](const auto& each) { return each.second.failed(); });
  if (first == ends.end()) return {};
  const auto& [host, end] = *first;
  const bool same = std::ranges::all_of(ends, [&, &bytes = end.bytes](const auto& each) {
    return each.second.failed() && each.second.bytes == bytes;
  });
  if (same) return end;
  return {end.outcome,
          bytes_of(fmt::format("rank {} on {}: {}", first - ends.begin(), host, end.message()))};
}

}  // namespace

std::vector<std::byte> broadcast_bytes(Ranks& ranks, std::string_view place,
                                       const std::function<std::vector<std::byte>()>& f) {
  std::vector<std::byte> own;
  std::exception_ptr error;
  if (ranks.rank() == 0) {
    const Call call(f);
    own = pack(call.end);
    error = call.error;
  }
  const std::vector<std::byte> from_rank_0 = ranks.broadcast(place, own);
  if (error) std::rethrow_exception(error);
  return result_of(ranks, from_rank_0);
}

std::vector<std::byte> scatter_bytes(
    Ranks& ranks, std::string_view place,
    const std::function<std::vector<std::vector<std::byte>>()>& f) {
  std::vector<std::vector<std::byte>> own;
  std::exception_ptr error;
  if (ranks.rank() == 0) {
    const Call call([&] {
      for (std::vector<std::byte>& block : f()) own.push_back(pack(End{.bytes = std::move(block)}));
      return std::vector<std::byte>();
    });
    error = call.error;
    if (call.end.failed()) own.assign(static_cast<std::size_t>(ranks.size()), pack(call.end));
  }
  const std::vector<std::byte> from_rank_0 = ranks.scatter(place, {own.begin(), own.end()});
  if (error) std::rethrow_exception(error);
  return result_of(ranks, from_rank_0);
}

void on_rank_0(Ranks& ranks, std::string_view place, const std::function<void()>& f) {
  if (ranks.size() == 1) return f();
  broadcast_bytes(ranks, place, [&] {
    f();
    return std::vector<std::byte>();
  });
}

void on_all_ranks(Ranks& ranks, std::string_view place, const std::function<void()>& f) {
  if (ranks.size() == 1) return f();
  const Call own([&] {
    f();
    return std::vector<std::byte>();
  });
  const auto ends = gather(ranks, place, std::pair(host_name(), own.end));
  on_rank_0(ranks, place, [&] { check_end(first_error(ends)); });
}

void abort_on_error(Ranks& ranks, const std::function<void()>& f,
                    const std::function<void()>& undo) {
  const bool alone = ranks.size() == 1;
  try {
    f();
  } catch (const RankFailure&) {
    if (alone) undo();  // of other ranks than these
    throw;
  } catch (const std::exception& error) {
    const bool everywhere = alone || dynamic_cast<const OnEveryRank*>(&error) != nullptr;
    everywhere ? undo() : ranks.fail(error.what());
    throw;
  } catch (...) {
    alone ? undo() : ranks.fail(unknown_type);
    throw;
  }
}

bool same_run(const Ranks& one, const Ranks& other) {
  return &one == &other || (one.size() == 1 && other.size() == 1);
}

}  // namespace sotto
