// Which plan of the convolution library a problem gets.
#include "kernels/cuda/cudnn/kept_plan.h"

#include "tests/support/catch.h"

namespace sotto {
namespace {

// A plan knows whether trials found it.
struct Plan {
  bool tried;
};

const Plan* plan_for(std::int64_t problem, bool wanted, bool captured) {
  const std::lock_guard lock(cudnn_mutex());
  return tried_plan<Plan>(
      wanted, captured,
      [&](bool trials) {
        return PlanKey{problem, trials};
      },
      [](bool trials) { return std::make_unique<Plan>(trials); });
}

TEST_CASE("captured work has the plan that trials have found, and makes none") {
  const Plan* const tried = plan_for(1, true, false);
  CHECK(tried->tried);
  CHECK(plan_for(1, true, true) == tried);
  CHECK(plan_for(1, true, false) == tried);

  const Plan* const untried = plan_for(2, true, true);
  CHECK_FALSE(untried->tried);
  CHECK(plan_for(2, true, true) == untried);
  CHECK(plan_for(2, true, false)->tried);
  CHECK(plan_for(2, true, true)->tried);
}

TEST_CASE("without trials captured work and other work have one plan") {
  const Plan* const plan = plan_for(3, false, false);
  CHECK_FALSE(plan->tried);
  CHECK(plan_for(3, false, true) == plan);
}

TEST_CASE("that there is no plan is found once") {
  struct None {};
  int asked = 0;
  const auto find = [&]() -> std::unique_ptr<None> {
    ++asked;
    return nullptr;
  };
  const std::lock_guard lock(cudnn_mutex());
  CHECK(kept_plan<None>({4}, find) == nullptr);
  CHECK(kept_plan<None>({4}, find) == nullptr);
  CHECK(asked == 1);
}

}  // namespace
}  // namespace sotto
