#include "core/ranks/on_rank_0.h"

#include <exception>
#include <memory>
#include <stdexcept>
#include <typeinfo>
#include <utility>

#include "core/ranks/rank_failure.h"

namespace sotto {

namespace {

enum class Outcome : char { result, invalid_argument, system_failure, other_error };

Outcome kind_of(const std::exception& error) {
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr)
    return Outcome::invalid_argument;
  return dynamic_cast<const SystemFailure*>(&error) != nullptr ? Outcome::system_failure
                                                               : Outcome::other_error;
}

template <class Error>
class Told final : public Error, public OnEveryRank {
 public:
  using Error::Error;
};

[[noreturn]] void throw_error(Outcome outcome, const std::string& message) {
  if (outcome == Outcome::invalid_argument) throw Told<std::invalid_argument>(message);
  if (outcome == Outcome::system_failure) throw Told<SystemFailure>(message);
  throw Told<std::runtime_error>(message);
}

// What `f` has returned or thrown.
struct Attempt {
  PackedValues packed;  // the outcome, and the result or the message of an error
  std::exception_ptr error = nullptr;
  bool failed = true;

  explicit Attempt(const std::function<std::vector<std::byte>()>& f) {
    try {
      const std::vector<std::byte> result = f();
      packed.add(Outcome::result);
      packed.add_all(result);
      failed = false;
    } catch (const RankFailure&) {
      throw;
    } catch (const std::exception& thrown) {
      // Such an error is thrown again as an OnEveryRank, others as they are.
      const bool plain = typeid(thrown) == typeid(std::invalid_argument) ||
                         typeid(thrown) == typeid(SystemFailure);
      if (!plain) error = std::current_exception();
      packed.add(kind_of(thrown));
      packed.add_all(std::string(thrown.what()));
    } catch (...) {
      error = std::current_exception();
      packed.add(Outcome::other_error);
      packed.add_all(std::string("an exception of an unknown type"));
    }
  }
};

// Throws the error that was packed, or returns the values behind the outcome.
UnpackedValues result_of(std::vector<std::byte> told) {
  UnpackedValues values(std::move(told));
  const auto outcome = values.take<Outcome>();
  if (outcome != Outcome::result) throw_error(outcome, values.take_all<std::string>());
  return values;
}

// The result of a rank 0 that every rank has heard. A message that is none ends the run.
std::vector<std::byte> result_for_all(Ranks& ranks, std::vector<std::byte> told) {
  std::vector<std::byte> result;
  fail_together(ranks,
                [&] { result = result_of(std::move(told)).take_all<std::vector<std::byte>>(); });
  return result;
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
    Attempt attempt(f);
    told = std::move(attempt.packed);
    error = attempt.error;
  }
  std::vector<std::byte> from_rank_0 = ranks.tell(place, std::move(told).take());
  if (error) std::rethrow_exception(error);
  return result_for_all(ranks, std::move(from_rank_0));
}

std::vector<std::byte> dealt_by_rank_0(
    Ranks& ranks, std::string_view place,
    const std::function<std::vector<std::vector<std::byte>>()>& f) {
  std::vector<std::vector<std::byte>> told;
  std::exception_ptr error;
  if (ranks.rank() == 0) {
    Attempt attempt([&] {
      for (const std::vector<std::byte>& result : f()) {
        PackedValues packed;
        packed.add(Outcome::result);
        packed.add_all(result);
        told.push_back(std::move(packed).take());
      }
      return std::vector<std::byte>();
    });
    error = attempt.error;
    if (attempt.failed)
      told.assign(static_cast<std::size_t>(ranks.size()), std::move(attempt.packed).take());
  }
  std::vector<std::byte> from_rank_0 = ranks.deal(place, {told.begin(), told.end()});
  if (error) std::rethrow_exception(error);
  return result_for_all(ranks, std::move(from_rank_0));
}

void by_rank_0(const std::shared_ptr<Ranks>& ranks, std::string_view place,
               const std::function<void()>& f) {
  if (!ranks) return f();
  on_rank_0(*ranks, place, [&] {
    f();
    return std::vector<std::byte>();
  });
}

void on_each_rank(Ranks& ranks, std::string_view place, const std::function<void()>& f) {
  Attempt own([&] {
    f();
    return std::vector<std::byte>();
  });
  const auto all = ranks.collect(place, std::move(own.packed).take());
  by_rank_0(std::shared_ptr<Ranks>(std::shared_ptr<void>(), &ranks), place, [&] {
    for (const std::vector<std::byte>& of_rank : all) result_of(of_rank);
  });
}

void fail_together(Ranks& ranks, const std::function<void()>& f) {
  try {
    f();
  } catch (const RankFailure&) {
    throw;
  } catch (const std::exception& error) {
    if (dynamic_cast<const OnEveryRank*>(&error) == nullptr) ranks.fail(error.what());
    throw;
  } catch (...) {
    ranks.fail("an exception of an unknown type");
    throw;
  }
}

}  // namespace sotto
