// The commands: each makes an answer from its options.
#pragma once

#include <string>
#include <vector>

#include "samples/privacy_budget/answer.h"
#include "samples/privacy_budget/curves.h"
#include "samples/privacy_budget/options.h"
#include "samples/privacy_budget/progress.h"

namespace sotto::budget {

// Throws std::invalid_argument for what cannot be answered, a file to inspect that cannot be opened
// included, and SystemFailure for another ledger that cannot be read.
Answer answer(const Options& options, Progress& progress);

// The commands.
Answer answer_spent(const Options& options, Progress& progress);
Answer answer_target(const Options& options, Progress& progress);  // noise, steps, batch
Answer answer_compare(const Options& options, Progress& progress);
Answer answer_inspect(const Options& options);

// Functions that commands share.
// Describes an event: "poisson, rate 0.00426667".
std::string description(const Event& event);
std::string description(NeighboringRelation relation);
// Adds the relation and the accountant to the facts and the JSON.
void tell_method(Method method, NeighboringRelation relation, const Options& options,
                 Answer& answer);
// Adds {"epsilon": ..., "epsilon_at_least": ...}, with the name `what`.
void put_bounds(const std::string& what, const Bounds& bounds, nlohmann::ordered_json& json);
// Adds a note when delta is so large that publishing one record outright would be within it.
void note_delta(double delta, const std::optional<std::int64_t>& population, Answer& answer);
// The first `steps` steps of the phases, in order, with the noise multiplied.
History first_steps(const std::vector<Phase>& phases, std::int64_t steps, double noise);

}  // namespace sotto::budget
