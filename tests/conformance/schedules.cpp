#include "tests/conformance/schedules.h"

#include <functional>
#include <map>

namespace sotto::conformance {

namespace {

using nn::Schedule;
using Reader = std::function<Schedule(const Json&)>;

double number(const Json& s, const char* name) { return field<double>(s, name); }
std::int64_t whole(const Json& s, const char* name) { return field<std::int64_t>(s, name); }

Schedule one_cycle(const Json& s) {
  const auto strategy = field<std::string>(s, "anneal_strategy");
  if (strategy != "cos" && strategy != "linear") throw Malformed("anneal_strategy is " + strategy);
  return Schedule::one_cycle({.max_rate = number(s, "max_lr"),
                              .total_steps = whole(s, "total_steps"),
                              .rise = number(s, "pct_start"),
                              .cosine = strategy == "cos",
                              .start_divisor = number(s, "div_factor"),
                              .final_divisor = number(s, "final_div_factor"),
                              .three_phase = field<bool>(s, "three_phase"),
                              .cycle_momentum = field<bool>(s, "cycle_momentum"),
                              .base_momentum = number(s, "base_momentum"),
                              .max_momentum = number(s, "max_momentum")});
}

Schedule formula(const Json& s) {
  const auto name = field<std::string>(s, "formula");
  if (name == "warmup_linear") return Schedule::warmup_linear(whole(s, "warmup"));
  if (name == "warmup_cosine") {
    return Schedule::warmup_cosine(whole(s, "warmup"), whole(s, "total"), number(s, "final"));
  }
  if (name == "inv_sqrt") return Schedule::inverse_sqrt(whole(s, "warmup"));
  if (name == "warmup_linear_decay") {
    return Schedule::warmup_linear_decay(whole(s, "warmup"), whole(s, "total"));
  }
  throw Malformed("formula is " + name);
}

const std::map<std::string, Reader>& readers() {
  static const std::map<std::string, Reader> all{
      {"step",
       [](const Json& s) { return Schedule::step(whole(s, "step_size"), number(s, "gamma")); }},
      {"multistep",
       [](const Json& s) {
         return Schedule::multistep(field<std::vector<std::int64_t>>(s, "milestones"),
                                    number(s, "gamma"));
       }},
      {"exponential", [](const Json& s) { return Schedule::exponential(number(s, "gamma")); }},
      {"cosine",
       [](const Json& s) { return Schedule::cosine(whole(s, "T_max"), number(s, "eta_min")); }},
      {"cosine_restarts",
       [](const Json& s) {
         return Schedule::cosine_restarts(whole(s, "T_0"), whole(s, "T_mult"),
                                          number(s, "eta_min"));
       }},
      {"linear",
       [](const Json& s) {
         return Schedule::linear(number(s, "start_factor"), number(s, "end_factor"),
                                 whole(s, "total_iters"));
       }},
      {"constant",
       [](const Json& s) {
         return Schedule::constant(number(s, "factor"), whole(s, "total_iters"));
       }},
      {"polynomial",
       [](const Json& s) {
         return Schedule::polynomial(whole(s, "total_iters"), number(s, "power"));
       }},
      {"one_cycle", one_cycle},
      {"lambda", formula}};
  return all;
}

}  // namespace

nn::Schedule read_schedule(const Json& scheduler) {
  const auto type = field<std::string>(scheduler, "type");
  const auto found = readers().find(type);
  if (found == readers().end()) throw Malformed("schedule " + type + " is not in the vocabulary");
  return found->second(scheduler);
}

}  // namespace sotto::conformance
