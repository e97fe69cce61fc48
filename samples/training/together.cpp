#include "samples/training/together.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <span>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "core/io/xxh64.h"
#include "core/ranks/rank_failure.h"
#include "nn/optim/rank_sink.h"

namespace sotto::samples {

namespace {

using nlohmann::json;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}
std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
// Messages name files, whose names may be no UTF-8.
std::string dumped(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string own_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// The end of a rank's part: its error, if there was one.
struct End {
  std::exception_ptr error;
  bool bad_argument = false;
  std::string message{};
};

End end_of(const std::function<void()>& f) {
  try {
    f();
    return {};
  } catch (const RankFailure&) {
    throw;
  } catch (const std::invalid_argument& error) {
    return {std::current_exception(), true, error.what()};
  } catch (const std::exception& error) {
    return {std::current_exception(), false, error.what()};
  }
}

// The error of all from those of each: null if there was none.
json verdict(const std::vector<json>& ends) {
  const auto failed = [](const json& end) { return end.at("failed").get<bool>(); };
  const auto first = std::find_if(ends.begin(), ends.end(), failed);
  if (first == ends.end()) return nullptr;
  const bool same = std::all_of(ends.begin(), ends.end(), [&](const json& end) {
    return failed(end) && end.at("message") == first->at("message");
  });
  const std::string message = first->at("message").get<std::string>();
  return {{"bad argument", first->at("bad argument")},
          {"message", same ? message
                           : fmt::format("rank {} on {}: {}", first - ends.begin(),
                                         first->at("host").get<std::string>(), message)}};
}

// Throws the verdict; the error itself where it is this rank's.
void throw_verdict(const json& all, const End& own) {
  if (all.is_null()) return;
  const std::string message = all.at("message").get<std::string>();
  if (own.error && own.message == message) std::rethrow_exception(own.error);
  if (all.at("bad argument").get<bool>()) throw std::invalid_argument(message);
  throw SystemFailure(message);
}

json told(Ranks& ranks, const json& of_rank_0) {
  const std::string text = ranks.rank() == 0 ? dumped(of_rank_0) : "";
  return json::parse(text_of(ranks.tell("programs: decision", bytes_of(text))));
}

}  // namespace

void together(Ranks& ranks, const std::function<void()>& f) {
  if (ranks.size() == 1) return f();
  const End own = end_of(f);
  const json end = {{"failed", own.error != nullptr},
                    {"bad argument", own.bad_argument},
                    {"message", own.message},
                    {"host", own_host()}};
  std::vector<json> ends;
  for (const auto& each : ranks.collect("programs: end of a part", bytes_of(dumped(end))))
    ends.push_back(json::parse(text_of(each)));
  throw_verdict(told(ranks, verdict(ends)), own);
}

void on_first_rank(Ranks& ranks, const std::function<void()>& f) {
  if (ranks.size() == 1) return f();
  const End own = ranks.rank() == 0 ? end_of(f) : End{};
  const json all = own.error ? json{{"bad argument", own.bad_argument}, {"message", own.message}}
                             : json(nullptr);
  throw_verdict(told(ranks, all), own);
}

void check_equal(Ranks& ranks, const std::string& what, const std::string& text, Shown shown) {
  const auto all = ranks.collect("programs: " + what, bytes_of(text));
  on_first_rank(ranks, [&] {
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const std::string other = text_of(all[rank]);
      check(shown == Shown::yes || other == text, "{}: not the same on rank {} as on rank 0", what,
            rank);
      check(other == text, "{}: {} on rank {}, and {} on rank 0", what, other, rank, text);
    }
  });
}

int largest(Ranks& ranks, int own) {
  std::vector<int> all(static_cast<std::size_t>(ranks.size()));
  std::vector<Ranks::Room> rooms;
  for (int& each : all) rooms.push_back(std::as_writable_bytes(std::span(&each, 1)));
  ranks.gather("programs: signals", std::as_bytes(std::span(&own, 1)), rooms).wait();
  return *std::max_element(all.begin(), all.end());
}

Checkpoint told_checkpoint(Ranks& ranks, const std::function<Checkpoint()>& load) {
  if (ranks.size() == 1) return load();
  std::optional<Checkpoint> loaded;
  TensorFile file;
  on_first_rank(ranks, [&] {
    loaded = load();
    file = without_engine(*loaded);
  });
  const json of_rank_0 =
      loaded ? json{{"program", loaded->program}, {"metadata", file.metadata}} : json(nullptr);
  const json all = told(ranks, of_rank_0);
  file.tensors = nn::told_tensors(ranks, file.tensors);
  if (loaded) return *loaded;
  all.at("metadata").get_to(file.metadata);
  return parse_checkpoint(file, all.at("program").get<std::string>());
}

std::array<std::string, 2> fingerprints(const Data& data) {
  return {fmt::format("{:016x}", data.train.hash(data.hash_of_rest)),
          fmt::format("{:016x}", data.test.hash())};
}

}  // namespace sotto::samples
