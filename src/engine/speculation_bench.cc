// What speculative decoding gives: the same requests with and without it, in alternating steps.
//
//   x plain      how many times as fast as without, median of the rounds
//   x plain cpu  the same in processor time: with one thread the truer on a busy machine
//   accepted     share of the verified drafts that were right
//   drafting     share of the time that was spent on it
//   tokens/step  of one sequence, the first token aside
//
// QUIRE_BENCH_THREADS: computing threads, else one per core. QUIRE_BENCH_TARGET: the bundled target
// in other weights.
//
// bundled: the bundled target continues held-out prose; its bundled draft model guesses.
// made:    a made target (llama shape, 122M, Q8_0) and a made draft model a twentieth of its size,
//          which drafts and is then overruled: what is verified is what the target will say, each
//          token wrong with a given probability. So the cost is real and the acceptance set.
// edit:    the made target repeats a text of its prompt with changes, as a grammar makes it do, and
//          prompt lookup or suffix matching guesses.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/completion.h"
#include "engine/engine.h"
#include "engine/model_drafter.h"
#include "engine/sequence_evaluator.h"
#include "model/random_model.h"
#include "testing/median.h"
#include "testing/oracle_drafter.h"

namespace quire::engine {
namespace {

using sched::Request;

base::ThreadTeam& Team() {
  const char* threads = std::getenv("QUIRE_BENCH_THREADS");
  static base::ThreadTeam team(threads != nullptr
                                   ? std::atoi(threads)
                                   : static_cast<int>(std::thread::hardware_concurrency()));
  return team;
}

std::unique_ptr<LoadedModel> LoadOrDie(const std::string& path) {
  auto model = LoadedModel::Load(path, Team(), [](double) {});
  QUIRE_CHECK(model.ok());
  return std::make_unique<LoadedModel>(std::move(model).value());
}

std::unique_ptr<LoadedModel> MadeModel(const model::ShapeSizes& sizes) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("quire_spec_{}.gguf", ::getpid());
  QUIRE_CHECK(model::WriteRandomModel({.sizes = sizes}, path.string(), Team(), [](double) {}).ok());
  auto made = LoadOrDie(path.string());
  std::filesystem::remove(path);  // it stays mapped
  return made;
}

const LoadedModel& BundledTarget() {
  const char* path = std::getenv("QUIRE_BENCH_TARGET");
  static const auto model = LoadOrDie(path != nullptr ? path : "models/target/target-q8_0.gguf");
  return *model;
}
const LoadedModel& BundledDraft() {
  static const auto model = LoadOrDie("models/draft/draft-q8_0.gguf");
  return *model;
}
const LoadedModel& MadeTarget() {
  static const auto model = MadeModel({.name = "made",
                                       .vocab_size = 32000,
                                       .hidden_size = 1024,
                                       .layers = 8,
                                       .q_heads = 16,
                                       .kv_heads = 4,
                                       .ffn_size = 2816});
  return *model;
}
const LoadedModel& MadeDraft() {
  static const auto model = MadeModel({.name = "made",
                                       .vocab_size = 32000,
                                       .hidden_size = 160,
                                       .layers = 3,
                                       .q_heads = 5,
                                       .kv_heads = 5,
                                       .ffn_size = 480});
  return *model;
}

EngineOptions Options() {
  EngineOptions options;
  options.max_model_len = 1024;
  options.max_num_seqs = 32;
  options.kv_cache_memory = size_t{1} << 30;
  return options;
}

std::unique_ptr<Engine> MakeEngine(const LoadedModel& model, const EngineOptions& options) {
  auto engine = Engine::Create(model, options, Team());
  QUIRE_CHECK(engine.ok());
  return std::move(engine).value();
}

double CpuSeconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// An engine at work on requests, `batch` of them at a time, with the time that its steps took.
class Run {
 public:
  Run(Engine& engine, const std::vector<Request>& requests, int batch)
      : engine_(engine), requests_(requests), batch_(batch) {
    engine_.DropCachedPrefixes();
  }

  // False when all is answered.
  bool Step() {
    base::Stopwatch watch;
    const double cpu_before = CpuSeconds();
    const bool more = StepOrSubmit();
    seconds_ += watch.Lap();
    cpu_seconds_ += CpuSeconds() - cpu_before;
    return more;
  }

  double seconds() const { return seconds_; }
  double cpu_seconds() const { return cpu_seconds_; }                            // of all threads
  const std::vector<std::vector<TokenId>>& outputs() const { return outputs_; }  // [requests]

 private:
  bool StepOrSubmit() {
    if (engine_.Step([&](const SequenceUpdate& update) {
          builders_[std::ranges::find(ids_, update.request) - ids_.begin()].Add(update);
        })) {
      return true;
    }
    for (CompletionBuilder& builder : builders_) {
      outputs_.push_back(builder.Take().choices[0].tokens);
    }
    builders_.clear();
    ids_.clear();
    const size_t end = std::min(requests_.size(), outputs_.size() + batch_);
    for (size_t i = outputs_.size(); i < end; ++i) {
      builders_.emplace_back(requests_[i]);
      ids_.push_back(engine_.Submit(requests_[i]).value());
    }
    return !ids_.empty();
  }

  Engine& engine_;
  const std::vector<Request>& requests_;
  const size_t batch_;
  std::vector<CompletionBuilder> builders_;
  std::vector<RequestId> ids_;
  double seconds_ = 0;
  double cpu_seconds_ = 0;
  std::vector<std::vector<TokenId>> outputs_;
};

std::vector<std::vector<TokenId>> Answers(Engine& engine, const std::vector<Request>& requests,
                                          int batch) {
  Run run(engine, requests, batch);
  while (run.Step()) {
  }
  return run.outputs();
}

// Fills the counters from rounds of both; the answers must be the same.
void Compare(benchmark::State& state, Engine& plain, Engine& speculative,
             const std::vector<Request>& requests, int batch) {
  constexpr int kRounds = 5;
  const auto first = Answers(speculative, requests, batch);  // it learns what pays
  const SpeculationStats before = speculative.speculation();
  const int64_t steps_before = speculative.stats().steps;
  std::vector<double> gains, cpu_gains, plain_rates, rates;
  double speculative_seconds = 0;
  double tokens = 0;
  for (const auto& output : first) tokens += static_cast<double>(output.size());
  for (auto _ : state) {
    for (int i = 0; i < kRounds; ++i) {
      Run without(plain, requests, batch);
      Run with(speculative, requests, batch);
      // Step by step, so that the machine's moods meet both.
      for (bool more = true; more;) {
        const bool more_without = without.Step();
        more = with.Step() || more_without;
      }
      QUIRE_CHECK(with.outputs() == without.outputs() && with.outputs() == first);
      speculative_seconds += with.seconds();
      gains.push_back(without.seconds() / with.seconds());
      cpu_gains.push_back(without.cpu_seconds() / with.cpu_seconds());
      plain_rates.push_back(tokens / without.seconds());
      rates.push_back(tokens / with.seconds());
    }
  }
  const SpeculationStats& stats = speculative.speculation();
  const auto drafted = static_cast<double>(stats.draft_tokens - before.draft_tokens);
  const auto accepted = static_cast<double>(stats.accepted_tokens - before.accepted_tokens);
  const auto steps = static_cast<double>(speculative.stats().steps - steps_before) / kRounds;
  state.counters["drafting"] = (stats.propose_s - before.propose_s) / speculative_seconds;
  state.counters["plain tok/s"] = testing::Median(plain_rates);
  state.counters["tok/s"] = testing::Median(rates);
  state.counters["x plain"] = testing::Median(gains);
  state.counters["x plain cpu"] = testing::Median(cpu_gains);
  state.counters["accepted"] = drafted > 0 ? accepted / drafted : 0;
  state.counters["drafted/tok"] = drafted / (kRounds * tokens);
  state.counters["tok/step"] = tokens / (steps * batch);
}

// Paragraphs of held-out prose to continue.
std::vector<Request> ProseRequests(const LoadedModel& model, int count, int max_tokens,
                                   float temperature) {
  std::ifstream file("models/val.txt");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.prompt =
        model.tokenizer().Encode(text.substr(2000 + 3000 * i, 400), {.add_special = true});
    request.sampling.max_tokens = max_tokens;
    request.sampling.temperature = temperature;
    request.sampling.seed = i;
    request.sampling.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

// `temperature` in tenths; `tokens` 0: auto.
void Bundled(benchmark::State& state, DraftChoice choice) {
  const int batch = static_cast<int>(state.range(0));
  const auto temperature = static_cast<float>(state.range(1)) / 10;
  EngineOptions options = Options();
  auto plain = MakeEngine(BundledTarget(), options);
  if (state.range(2) > 0) options.speculation.tokens = static_cast<int>(state.range(2));
  options.speculation.draft_model = &BundledDraft();
  options.speculation.draft_choice = choice;
  auto speculative = MakeEngine(BundledTarget(), options);
  Compare(state, *plain, *speculative,
          ProseRequests(BundledTarget(), std::max(8, batch), 240, temperature), batch);
}
BENCHMARK_CAPTURE(Bundled, best, DraftChoice::kBest)
    ->ArgNames({"batch", "temperature_tenths", "tokens"})
    ->Args({1, 0, 0})
    ->Args({1, 0, 1})
    ->Args({1, 0, 2})
    ->Args({1, 0, 4})
    ->Args({1, 7, 0})
    ->Args({1, 7, 4})
    ->Args({4, 0, 0})
    ->Args({16, 0, 0})
    ->Args({32, 0, 0})
    ->Args({32, 10, 0})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Bundled, drawn, DraftChoice::kDrawn)
    ->ArgNames({"batch", "temperature_tenths", "tokens"})
    ->Args({1, 7, 4})
    ->Args({1, 10, 4})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// Costs what a draft model costs and is right as often as it is told to.
class OverruledDrafter : public Drafter {
 public:
  OverruledDrafter(std::unique_ptr<Drafter> model, testing::OracleDrafter oracle)
      : model_(std::move(model)), oracle_(std::move(oracle)) {}

  std::string_view name() const override { return "overruled"; }
  void Propose(std::span<DraftJob* const> jobs) override {
    model_->Propose(jobs);
    for (DraftJob* job : jobs) {
      job->drafts_max = static_cast<int>(job->drafts.size());
      job->drafts.clear();
    }
    oracle_.Propose(jobs);
  }
  double PassSeconds() const override { return model_->PassSeconds(); }
  void Forget(const sched::Sequence& sequence, const sched::Request& request) override {
    model_->Forget(sequence, request);
  }

 private:
  std::unique_ptr<Drafter> model_;
  testing::OracleDrafter oracle_;
};

void Made(benchmark::State& state) {
  const int batch = static_cast<int>(state.range(0));
  const double right = static_cast<double>(state.range(1)) / 100;
  EngineOptions options = Options();
  auto plain = MakeEngine(MadeTarget(), options);
  std::vector<Request> requests;
  for (int i = 0; i < std::max(2, batch); ++i) {
    Request request;
    for (int t = 0; t < 40; ++t) request.prompt.push_back(300 + (i * 977 + t * 131) % 30000);
    request.sampling.max_tokens = 96;
    request.sampling.seed = i;
    request.sampling.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  const auto said = Answers(*plain, requests, batch);
  testing::OracleDrafter oracle(SpeculationOptions::kTokensMax, right, 5);
  for (size_t i = 0; i < requests.size(); ++i) oracle.Learn(requests[i].prompt, 0, said[i]);
  if (state.range(2) > 0) options.speculation.tokens = static_cast<int>(state.range(2));
  auto speculative = MakeEngine(MadeTarget(), options);
  auto model = ModelDrafter::Create(
      MadeTarget(), MadeDraft(),
      {.max_num_seqs = 32, .max_model_len = 1024, .kv_tokens = 32 * 1024}, Team());
  speculative->AddDrafter(
      std::make_unique<OverruledDrafter>(std::move(model).value(), std::move(oracle)));
  Compare(state, *plain, *speculative, requests, batch);
}
BENCHMARK(Made)
    ->ArgNames({"batch", "right_percent", "tokens"})
    ->Args({1, 80, 0})
    ->Args({1, 80, 4})
    ->Args({1, 80, 6})
    ->Args({1, 30, 0})
    ->Args({16, 80, 0})
    ->Args({16, 30, 0})
    ->Args({32, 80, 0})
    ->Args({32, 30, 0})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// A text of words, then the same with some of them changed, which is what the answer must be.
Request EditRequest(const text::Tokenizer& tokenizer, int words, uint64_t seed) {
  static const std::vector<TokenId> vocabulary = [&] {
    std::vector<TokenId> ids;  // of one length, so that none begins another
    for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
      const std::string_view bytes = tokenizer.TokenBytes(id);
      if (bytes.size() == 4 && bytes[0] == ' ') ids.push_back(id);
    }
    return ids;
  }();
  base::CounterRng rng(seed, 3, 0);
  Request request;
  std::string answer;
  for (int i = 0; i < words; ++i) {
    const TokenId word = vocabulary[rng.NextBelow(vocabulary.size())];
    request.prompt.push_back(word);
    const bool changed = rng.NextBelow(20) == 0;
    answer += tokenizer.TokenBytes(changed ? vocabulary[rng.NextBelow(vocabulary.size())] : word);
  }
  request.prompt.insert(request.prompt.begin(), *tokenizer.bos());
  request.sampling.constraint = {sched::OutputConstraint::Kind::kChoice, "", {answer}};
  request.sampling.allowed_token_ids = vocabulary;
  request.sampling.allowed_token_ids.push_back(*tokenizer.eos());
  request.sampling.max_tokens = words;
  request.sampling.seed = seed;
  return request;
}

void Edit(benchmark::State& state, DraftMethod method) {
  const int batch = static_cast<int>(state.range(0));
  EngineOptions options = Options();
  auto plain = MakeEngine(MadeTarget(), options);
  if (state.range(1) > 0) options.speculation.tokens = static_cast<int>(state.range(1));
  options.speculation.methods = {method};
  auto speculative = MakeEngine(MadeTarget(), options);
  std::vector<Request> requests;
  for (int i = 0; i < std::max(2, batch); ++i) {
    requests.push_back(EditRequest(MadeTarget().tokenizer(), 200, i));
  }
  Compare(state, *plain, *speculative, requests, batch);
}
BENCHMARK_CAPTURE(Edit, ngram, DraftMethod::kNgram)
    ->ArgNames({"batch", "tokens"})
    ->Args({1, 0})
    ->Args({1, 8})
    ->Args({16, 0})
    ->Args({32, 0})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Edit, suffix, DraftMethod::kSuffix)
    ->ArgNames({"batch", "tokens"})
    ->Args({1, 0})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// Text that does not repeat itself: guessing from it must cost nothing.
void Prose(benchmark::State& state, DraftMethod method) {
  const int batch = static_cast<int>(state.range(0));
  EngineOptions options = Options();
  auto plain = MakeEngine(BundledTarget(), options);
  options.speculation.methods = {method};
  options.speculation.sharing = OutputSharing::kOff;  // later rounds must not know earlier ones
  auto speculative = MakeEngine(BundledTarget(), options);
  Compare(state, *plain, *speculative,
          ProseRequests(BundledTarget(), std::max(8, batch), 120, 1.0f), batch);
}
BENCHMARK_CAPTURE(Prose, ngram, DraftMethod::kNgram)
    ->ArgNames({"batch"})
    ->Args({1})
    ->Args({16})
    ->Args({32})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Prose, suffix, DraftMethod::kSuffix)
    ->ArgNames({"batch"})
    ->Args({1})
    ->Args({16})
    ->Args({32})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

std::vector<std::vector<float>> LogitsOf(const LoadedModel& model,
                                         std::span<const TokenId> tokens) {
  auto evaluator = SequenceEvaluator::Create(
      model, {.kv_format = {}, .max_tokens = static_cast<int>(tokens.size())}, Team());
  QUIRE_CHECK(evaluator.ok());
  std::vector<std::vector<float>> logits;
  QUIRE_CHECK((*evaluator)
                  ->Evaluate(tokens,
                             [&](int, std::span<const float> row) {
                               logits.emplace_back(row.begin(), row.end());
                             })
                  .ok());
  return logits;
}

std::vector<double> Softmax(std::span<const float> logits, double temperature) {
  const float most = *std::ranges::max_element(logits);
  std::vector<double> p;
  double total = 0;
  for (const float logit : logits) total += p.emplace_back(std::exp((logit - most) / temperature));
  for (double& share : p) share /= total;
  return p;
}

// How often a draft is accepted on held-out prose, by how it is chosen: the likeliest, drawn with
// the target's key, or drawn by itself and corrected after a rejection (sum of min(p, q): the most
// there is, at the price of answers that depend on the drafts).
void Coupling(benchmark::State& state) {
  const double temperature = static_cast<double>(state.range(0)) / 10;
  std::ifstream file("models/val.txt");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<TokenId> tokens =
      BundledTarget().tokenizer().Encode(text.substr(0, 20000), {.add_special = true});
  tokens.resize(std::min<size_t>(tokens.size(), 1024));
  double best = 0;
  double drawn = 0;
  double most = 0;
  for (auto _ : state) {
    const auto target = LogitsOf(BundledTarget(), tokens);
    const auto draft = LogitsOf(BundledDraft(), tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::vector<double> p = Softmax(target[i], temperature);
      const std::vector<double> q = Softmax(draft[i], temperature);
      best += p[std::ranges::max_element(q) - q.begin()];
      double p_sum = 0;
      double q_sum = 0;
      for (size_t t = 0; t < p.size(); ++t) {
        most += std::min(p[t], q[t]);
        // One number picks the same token where both intervals hold it.
        drawn += std::max(0.0, std::min(p_sum + p[t], q_sum + q[t]) - std::max(p_sum, q_sum));
        p_sum += p[t];
        q_sum += q[t];
      }
    }
  }
  const auto count = static_cast<double>(tokens.size());
  state.counters["best"] = best / count;
  state.counters["drawn"] = drawn / count;
  state.counters["min(p,q)"] = most / count;
}
BENCHMARK(Coupling)
    ->ArgName("temperature_tenths")
    ->Arg(3)
    ->Arg(7)
    ->Arg(10)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quire::engine
