#include "core/ranks/on_rank_0.h"

#include <exception>
#include <stdexcept>

#include "core/ranks/rank_failure.h"

namespace sotto {

namespace {

enum class Outcome : char { result, invalid_argument, system_failure, other_error };

Outcome outcome_of(const std::exception& error) {
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr)
    return Outcome::invalid_argument;
  return dynamic_cast<const SystemFailure*>(&error) != nullptr ? Outcome::system_failure
                                                               : Outcome::other_error;
}

[[noreturn]] void throw_error(Outcome outcome, const std::string& message) {
  if (outcome == Outcome::invalid_argument) throw std::invalid_argument(message);
  if (outcome == Outcome::system_failure) throw SystemFailure(message);
  throw std::runtime_error(message);
}

}  // namespace

const Ranks* several(const Ranks* ranks) {
  return ranks != nullptr && ranks->size() > 1 ? ranks : nullptr;
}

std::vector<std::byte> on_rank_0(Ranks& ranks, std::string_view place,
                                 const std::function<std::vector<std::byte>()>& f) {
  PackedValues told;
  std::exception_ptr error;
  if (ranks.rank() == 0) {
    try {
      const std::vector<std::byte> result = f();
      told.add(Outcome::result);
      told.add_all(result);
    } catch (const RankFailure&) {
      throw;
    } catch (const std::exception& thrown) {
      error = std::current_exception();
      told.add(outcome_of(thrown));
      told.add_all(std::string(thrown.what()));
    } catch (...) {
      error = std::current_exception();
      told.add(Outcome::other_error);
      told.add_all(std::string("an exception of an unknown type"));
    }
  }
  UnpackedValues values(ranks.tell(place, std::move(told).take()));
  if (error) std::rethrow_exception(error);
  const auto outcome = values.take<Outcome>();
  if (outcome != Outcome::result) throw_error(outcome, values.take_all<std::string>());
  return values.take_all<std::vector<std::byte>>();
}

void by_rank_0(const std::shared_ptr<Ranks>& ranks, std::string_view place,
               const std::function<void()>& f) {
  if (!ranks) return f();
  on_rank_0(*ranks, place, [&] {
    f();
    return std::vector<std::byte>();
  });
}

void fail_together(Ranks& ranks, const std::function<void()>& f) {
  try {
    f();
  } catch (const RankFailure&) {
    throw;
  } catch (const std::exception& error) {
    ranks.fail(error.what());
    throw;
  } catch (...) {
    ranks.fail("an exception of an unknown type");
    throw;
  }
}

}  // namespace sotto
