#include "nn/state.h"

#include <unistd.h>

#include <filesystem>

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers.h"
#include "nn/optim/moving_average.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// A temporary path, whose file is removed when the test ends.
struct TemporaryFile {
  std::string path = std::filesystem::temp_directory_path() /
                     ("sotto_state_test_" + std::to_string(getpid()) + ".safetensors");
  TemporaryFile() = default;
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { std::filesystem::remove(path); }
};

nn::Sequential network() { return nn::Sequential{nn::Conv2d(1, 2, 3), nn::Linear(2, 3)}; }

std::vector<float> all_values(nn::Module& module) {
  std::vector<float> all;
  for (const Parameter* parameter : module.parameters()) {
    for (const float v : parameter->value.to_vector<float>()) all.push_back(v);
  }
  return all;
}

// A module with one parameter.
struct Single : nn::Module {
  explicit Single(double value, Dtype dtype = Dtype::f64)
      : p(std::make_unique<Parameter>(full({2}, value, dtype))) {}
  Var forward(const Var& x) override { return x; }
  void visit(const nn::Visitor& visitor) override { visitor("p", p); }
  void set(double value) { p->value = full({2}, value, p->value.dtype()); }
  double get() const { return p->value.select(0, 1).item(); }

  std::unique_ptr<Parameter> p;
};

}  // namespace

TEST_CASE("a module read from its file is the module written") {
  const TemporaryFile file;
  nn::Sequential written = network();
  nn::Sequential read = network();
  REQUIRE(all_values(written) != all_values(read));
  nn::save_module(file.path, written, {{"epoch", "7"}});
  CHECK(nn::load_module(file.path, read) == std::map<std::string, std::string>{{"epoch", "7"}});
  CHECK(all_values(written) == all_values(read));
  CHECK(throws<SystemFailure>([&] { nn::load_module(file.path + ".absent", read); }, "absent"));
}

TEST_CASE("a file that does not fit is refused by name and changes nothing") {
  nn::Sequential module = network();
  const std::vector<float> before = all_values(module);
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, value] : nn::parameter_tensors(module)) tensors[name] = scale(value, 2);
  const auto refused = [&](const std::map<std::string, Tensor>& wrong, const std::string& text) {
    const bool thrown = throws([&] { nn::set_parameters(module, wrong, "file"); }, text);
    return thrown && all_values(module) == before;
  };

  auto wrong = tensors;
  wrong.erase("1.bias");
  CHECK(refused(wrong, "file: 1.bias is missing"));
  wrong = tensors;
  wrong["2.weight"] = zeros({1});
  CHECK(refused(wrong, "file: 2.weight is no parameter"));
  wrong = tensors;
  wrong["1.weight"] = zeros({2, 3});
  CHECK(refused(wrong, "file: 1.weight is f32 (2, 3) where f32 (3, 2) is needed"));
  wrong = tensors;
  wrong["1.bias"] = zeros({3}, Dtype::i64);
  CHECK(refused(wrong, "file: 1.bias is i64 (3) where f32 (3) is needed"));
  wrong["1.bias"] = Tensor::from({0, 1e300, 0}, {3}, Dtype::f64);
  CHECK(refused(wrong, "file: 1.bias holds 1e+300 in f64, beyond the range of f32"));
  nn::set_parameters(module, tensors, "file");
  CHECK(all_values(module)[0] == 2 * before[0]);
}

TEST_CASE("weights in another floating-point type are converted, exactly where that is possible") {
  const TemporaryFile file;
  const std::vector<double> values{0.5, -3, 1 + 0x1p-7, 0x1p-14};
  for (const Dtype stored : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const Dtype own : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
      INFO(name(stored) << " into " << name(own));
      Single module(7, own);
      module.p->value = zeros({4}, own);
      save_safetensors(file.path,
                       {.tensors = {{"p", to_dtype(Tensor::from(values, {4}), stored)}}});
      nn::load_module(file.path, module);
      CHECK(module.p->value.dtype() == own);
      CHECK(to_dtype(module.p->value, Dtype::f64).to_vector<double>() == values);
    }
  }
  const auto loaded = [](double value, Dtype stored, Dtype own) {
    Single module(7, own);
    nn::set_parameters(module, {{"p", full({2}, value, stored)}}, "file");
    return module.get();
  };
  CHECK(loaded(0.1, Dtype::f64, Dtype::f32) == 0.1F);
  CHECK(loaded(HUGE_VAL, Dtype::f64, Dtype::f32) == HUGE_VAL);
  CHECK(std::isnan(loaded(std::nan(""), Dtype::f64, Dtype::f16)));
  for (const Dtype stored : {Dtype::f64, Dtype::f32, Dtype::bf16})
    CHECK(throws([&] { loaded(0x1p20, stored, Dtype::f16); }, "beyond the range of f16"));
  Single exact(7);
  CHECK(throws(
      [&] {
        nn::set_parameters(exact, {{"p", full({2}, 1)}}, "file", nn::OtherTypes::refused);
      },
      "file: p is f32 (2) where f64 (2) is needed"));
}

TEST_CASE("a module whose visit() forgets a child, or a parameter, is not saved without it") {
  struct Forgetful final : nn::Module {
    Var forward(const Var& x) override { return child(x) * x.tape().use(*scale); }
    void visit(const nn::Visitor& visitor) override {
      if (shows_child) visitor("child", child);
      if (shows_scale) visitor("scale", scale);
    }
    bool shows_child = true, shows_scale = true;
    nn::Linear child{3, 2};
    std::unique_ptr<Parameter> scale = std::make_unique<Parameter>(full({2}, 1));
  };
  const TemporaryFile file;
  const auto save_after_call = [&](bool shows_child, bool shows_scale) {
    Forgetful inner;
    inner.shows_child = shows_child;
    inner.shows_scale = shows_scale;
    nn::Sequential model{std::move(inner)};
    Tape tape;
    model(tape.input(zeros({4, 3})));
    nn::save_module(file.path, model);
  };
  CHECK_NOTHROW(save_after_call(true, true));
  CHECK(
      throws([&] { save_after_call(false, true); },
             "a parameter would be left out: that of a Linear of 0, which visit() does not show"));
  CHECK(throws([&] { save_after_call(true, false); }, "of 0, whose visit() does not show it"));
}

TEST_CASE("a parameter that another module's visit() shows is not missing") {
  nn::Linear shared(3, 3);
  struct Borrower final : nn::Module {
    explicit Borrower(nn::Linear& other) : other(&other) {}
    Var forward(const Var& x) override { return (*other)(x); }
    nn::Linear* other;
  };
  struct Whole final : nn::Module {
    explicit Whole(nn::Linear& other) : borrower(other), lender(&other) {}
    Var forward(const Var& x) override { return borrower(x); }
    void visit(const nn::Visitor& visitor) override {
      visitor("borrower", borrower);
      visitor("lender", *lender);
    }
    Borrower borrower;
    nn::Linear* lender;
  } whole(shared);
  Tape tape;
  whole(tape.input(zeros({2, 3})));
  CHECK(nn::parameter_tensors(whole).size() == 2);
  shared.freeze();  // frozen, the borrower need not save it
  whole.borrower(tape.input(zeros({2, 3})));
  CHECK(nn::parameter_tensors(whole.borrower).empty());
}

TEST_CASE("values that are read do not share storage with the given ones") {
  Single module(1);
  const Tensor given = full({2}, 5, Dtype::f64);
  nn::set_parameters(module, {{"p", given}}, "file");
  axpby(1, given, 1, given);
  CHECK(module.get() == 5);
}

TEST_CASE("a moving average weighs its values by powers of the decay, without bias") {
  Single module(100);
  nn::MovingAverage average(module, 0.5);
  Single copy(0);
  CHECK(throws([&] { average.copy_to(copy); }, "no update yet"));
  module.set(4);
  average.update();
  average.copy_to(copy);
  CHECK(copy.get() == Approx(4));
  module.set(1);
  average.update();
  module.set(-2);
  average.update();
  average.copy_to(copy);
  // Weights 1/7, 2/7 and 4/7.
  CHECK(copy.get() == Approx((4 + 2 * 1 + 4 * -2) / 7.0));
  CHECK(module.get() == -2);
}

TEST_CASE("a scope lends the averages to the module") {
  Single module(4);
  nn::MovingAverage average(module, 0.9);
  average.update();
  module.set(7);
  {
    const nn::MovingAverage::Scope scope(average);
    CHECK(module.get() == Approx(4));
    CHECK(throws([&] { average.update(); },
                 "update while a Scope has put the averages into the module"));
    CHECK(throws([&] { nn::MovingAverage::Scope nested(average); }, "the module has the averages"));
  }
  CHECK(module.get() == 7);
}

TEST_CASE("with a warmup the decay of a moving average rises from small ones to its own") {
  Single module(100), copy(0);
  nn::MovingAverage average(module, 0.2, nn::AverageStart::warmup);
  const auto after = [&](double value) {
    module.set(value);
    average.update();
    average.copy_to(copy);
    return copy.get();
  };
  CHECK(after(3) == Approx(3));
  CHECK(after(-8) == Approx(2.0 / 11 * 3 - 9.0 / 11 * 8));
  const double second = copy.get();
  CHECK(after(5) == Approx(0.2 * second + 0.8 * 5));  // 3 / 12 would be more than 0.2
}

TEST_CASE("a moving average continues from its state") {
  Single module(0);
  nn::MovingAverage whole(module, 0.75);
  nn::MovingAverage first(module, 0.75);
  for (const double value : {3.0, -1.0}) {
    module.set(value);
    whole.update();
    first.update();
  }
  nn::MovingAverage second(module, 0.75);
  second.load_state(first.state());
  module.set(11);
  whole.update();
  second.update();
  Single a(0);
  Single b(0);
  whole.copy_to(a);
  second.copy_to(b);
  CHECK(a.get() == b.get());
  CHECK(second.updates() == 3);
}

TEST_CASE("a moving average refuses a state that does not fit") {
  Single module(1);
  nn::MovingAverage average(module, 0.75);
  average.update();
  auto state = average.state();
  state["average.q"] = zeros({1});
  CHECK(throws([&] { average.load_state(state); }, "3 entries in the state where 2 are needed"));
  state.erase("average.p");
  CHECK(throws([&] { average.load_state(state); }, "the state has no average.p"));
  state["average.p"] = zeros({2});
  CHECK(throws([&] { average.load_state(state); }, "average.p is f32 (2) where f64 (2)"));
  CHECK(throws([&] { average.load_state({}); }, "the state has no updates"));
  CHECK(throws([&] { nn::MovingAverage(module, 1); }, "decay 1 outside"));
  Single narrow(1, Dtype::f16);
  CHECK(throws([&] { nn::MovingAverage(narrow, 0.5); }, "p is f16, not f32 or f64"));
}
