// When drafts are made: a scheduler without a model, drafters that are told how often to be right,
// and steps that take as long as a test says.
#include "engine/speculator.h"

#include <functional>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "sched/fake_engine.h"

namespace quire::engine {
namespace {

constexpr int kVocabulary = 50;

class ToldDrafter : public Drafter {
 public:
  ToldDrafter(const sched::FakeEngine& engine, const double& right)
      : engine_(engine), right_(right) {}

  std::string_view name() const override { return "told"; }
  void Propose(std::span<DraftJob* const> jobs) override {
    ++asked_;
    for (DraftJob* job : jobs) {
      std::vector<TokenId> tokens = job->sequence->tokens;
      for (int i = 0; i < job->drafts_max; ++i) {
        const TokenId next = engine_.NextToken(tokens, job->sequence->index);
        const bool is_right = static_cast<double>(rng_.NextBelow(1000)) < 1000 * right_;
        tokens.push_back(is_right ? next : (next + 1) % kVocabulary);
        job->drafts.push_back(tokens.back());
      }
    }
  }
  void Forget(const sched::Sequence& /*sequence*/, const sched::Request& /*request*/) override {}

  int asked() const { return asked_; }

 private:
  const sched::FakeEngine& engine_;
  const double& right_;
  base::CounterRng rng_{7, 0, 0};
  int asked_ = 0;
};

class SpeculatorTest : public ::testing::Test {
 protected:
  SpeculatorTest() : engine_(Options(), Cache(), kVocabulary), speculator_({}) {
    sched::Request request;
    request.id = "a";
    request.prompt = {1, 2, 3};
    request.sampling.max_tokens = 100000;
    request.sampling.ignore_eos = true;
    QUIRE_CHECK(engine_.scheduler().Submit(std::move(request)).ok());
  }

  ToldDrafter& AddDrafter() {
    auto drafter = std::make_unique<ToldDrafter>(engine_, right_);
    ToldDrafter& added = *drafter;
    speculator_.Add(std::move(drafter));
    return added;
  }

  // Of `steps` steps, those that had drafts.
  int Run(int steps) {
    int with_drafts = 0;
    for (int i = 0; i < steps; ++i) {
      sched::Scheduler& scheduler = engine_.scheduler();
      speculator_.Propose(
          scheduler, [](SequenceId) { return false; }, [](SequenceId, std::vector<TokenId>&) {});
      std::optional<SequenceId> id;
      int drafts = 0;
      int before = 0;
      for (const SequenceId running : scheduler.running()) {
        id = running;
        drafts = static_cast<int>(scheduler.sequence(running).drafts.size());
        before = static_cast<int>(scheduler.sequence(running).tokens.size());
      }
      QUIRE_CHECK(engine_.Step());
      speculator_.ObserveStep(1 + drafts, seconds_(1 + drafts));
      with_drafts += drafts > 0;
      if (drafts == 0) continue;
      const auto now = static_cast<int>(scheduler.sequence(*id).tokens.size());
      speculator_.Observe(*id, drafts, now - before - 1);
    }
    return with_drafts;
  }

  double right_ = 0;                                              // of the drafters
  std::function<double(int)> seconds_ = [](int) { return 1.0; };  // of a step, by its rows
  sched::FakeEngine engine_;
  Speculator speculator_;

 private:
  static sched::SchedulerOptions Options() {
    sched::SchedulerOptions options;
    options.max_num_seqs = 4;
    options.max_num_batched_tokens = 64;
    options.max_model_len = 8192;
    return options;
  }
  static kv::KvCacheOptions Cache() {
    kv::KvCacheOptions options;
    options.frames = 600;
    options.block_tokens = 16;
    return options;
  }
};

TEST_F(SpeculatorTest, DraftsWhereStepsOfManyRowsCostAsMuchAsStepsOfOne) {
  AddDrafter();
  right_ = 0.9;
  EXPECT_GT(Run(300), 250);
  EXPECT_GT(speculator_.stats().accepted_tokens, 1000);
}

TEST_F(SpeculatorTest, LeavesItBeWhereRowsCostAsMuchAsSteps) {
  AddDrafter();
  right_ = 0.9;
  seconds_ = [](int rows) { return static_cast<double>(rows); };
  Run(100);
  EXPECT_LT(Run(2000), 12);
}

TEST_F(SpeculatorTest, EveryMethodIsTriedNowAndThen) {
  ToldDrafter& first = AddDrafter();
  ToldDrafter& second = AddDrafter();
  Run(500);  // both are always wrong, and soon out of use
  const int first_before = first.asked();
  const int second_before = second.asked();
  EXPECT_LT(Run(3000), 60);
  EXPECT_GE(first.asked() - first_before, 2);
  EXPECT_GE(second.asked() - second_before, 2);
}

TEST_F(SpeculatorTest, ComesBackWhenDraftsAreRightAgain) {
  AddDrafter();
  Run(300);
  right_ = 1.0;
  int rounds = 1;
  while (Run(20) < 15 && rounds < 60) ++rounds;
  EXPECT_LT(rounds, 60);
}

// It takes 10 % to begin, and 3 % to go on: also after the steps without drafts, which tell what
// those cost.
TEST_F(SpeculatorTest, GoesOnWhileALittleIsGained) {
  AddDrafter();
  right_ = 1.0;
  Run(100);
  seconds_ = [](int rows) { return rows == 1 ? 1.0 : rows / 1.08; };
  Run(200);
  EXPECT_GT(Run(400), 360);
}

}  // namespace
}  // namespace quire::engine
