// `quire eval recall`: what a KV cache's codecs and eviction policies forget, by depth and length
// of the context.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/eval_eviction_flags.h"
#include "cli/eval_flags.h"
#include "cli/markdown_table.h"
#include "cli/progress_bar.h"
#include "eval/recall.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

std::string DepthName(int depth) {
  constexpr int kPart = 100 / eval::kRecallDepths;
  return fmt::format("{}-{} %", depth * kPart, (depth + 1) * kPart);
}

std::string Share(const eval::RecallTally& tally) {
  return tally.asked == 0 ? "-" : fmt::format("{:.1f} %", 100 * tally.accuracy());
}

bool AnyEvicts(const std::vector<eval::RecallScore>& scores) {
  return std::ranges::any_of(scores, [](const eval::RecallScore& score) {
    return score.variant.eviction.options.evicts();
  });
}

std::string SummaryTable(const std::vector<eval::RecallScore>& scores) {
  const bool evictions = AnyEvicts(scores);
  std::vector<std::string> header = kCodecColumns;
  if (evictions) {
    header.insert(header.end(), kEvictionColumns.begin(), kEvictionColumns.end());
    header.emplace_back("tokens kept");
  }
  header.insert(header.end(), {"asked", "right", "accuracy", "mean NLL"});
  MarkdownTable table(std::move(header));
  for (const eval::RecallScore& score : scores) {
    std::vector<std::string> row = CodecCells(score.variant, score.cost);
    if (evictions) {
      const std::vector<std::string> policy = EvictionCells(score.variant.eviction);
      row.insert(row.end(), policy.begin(), policy.end());
      row.push_back(fmt::format("{:.0f}", score.tokens_kept));
    }
    row.push_back(fmt::format("{}", score.total.asked));
    row.push_back(fmt::format("{}", score.total.right));
    row.push_back(Share(score.total));
    row.push_back(fmt::format("{:.4f}", score.total.mean_nll()));
    table.AddRow(std::move(row));
  }
  return table.Text();
}

std::string DepthTable(const std::vector<eval::RecallScore>& scores) {
  const bool evictions = AnyEvicts(scores);
  std::vector<std::string> header = {"codec"};
  if (evictions) header.insert(header.end(), kEvictionColumns.begin(), kEvictionColumns.end());
  header.insert(header.end(), {"context", "asked", "all depths"});
  for (int depth = 0; depth < eval::kRecallDepths; ++depth) header.push_back(DepthName(depth));
  MarkdownTable table(std::move(header));
  for (const eval::RecallScore& score : scores) {
    for (const eval::RecallLength& length : score.lengths) {
      std::vector<std::string> row = {score.variant.name};
      if (evictions) {
        const std::vector<std::string> policy = EvictionCells(score.variant.eviction);
        row.insert(row.end(), policy.begin(), policy.end());
      }
      row.push_back(fmt::format("{}", length.tokens));
      row.push_back(fmt::format("{}", length.total.asked));
      row.push_back(Share(length.total));
      for (const eval::RecallTally& tally : length.by_depth) row.push_back(Share(tally));
      table.AddRow(std::move(row));
    }
  }
  return table.Text();
}

std::string AsTables(const std::vector<eval::RecallScore>& scores) {
  return SummaryTable(scores) +
         "\nRight answers by length of the context and depth of the fact:\n\n" + DepthTable(scores);
}

json::object TallyAsJson(const eval::RecallTally& tally) {
  return {{"asked", tally.asked},
          {"right", tally.right},
          {"accuracy", tally.accuracy()},
          {"mean_nll", tally.mean_nll()}};
}

json::object AsJson(const eval::RecallScore& score) {
  json::object codec = CodecAsJson(score.variant, score.cost);
  AddEviction(score.variant.eviction, codec);
  codec["tokens_kept"] = score.tokens_kept;
  codec["total"] = TallyAsJson(score.total);
  json::array lengths;
  for (const eval::RecallLength& length : score.lengths) {
    json::object entry = {{"context_tokens", length.tokens}, {"total", TallyAsJson(length.total)}};
    json::array by_depth;
    for (const eval::RecallTally& tally : length.by_depth) by_depth.push_back(TallyAsJson(tally));
    entry["by_depth"] = std::move(by_depth);
    lengths.push_back(std::move(entry));
  }
  codec["lengths"] = std::move(lengths);
  return codec;
}

class EvalRecallCommand : public Command {
 public:
  std::string_view name() const override { return "eval recall"; }
  std::string_view summary() const override {
    return "Asks for facts hidden in long contexts, with each KV codec and eviction policy.";
  }

  void Declare(base::FlagSet& flags) override {
    flags
        .Add("cases", &cases_path_,
             "Prepared contexts and questions, a JSON object per line; - reads stdin.")
        .Metavar("FILE");
    flags
        .Add("questions", &options_.max_questions,
             "Ask the first so many questions of each context; 0: all.")
        .AtLeast(0);
    flags.Group("Made cases");
    flags.Add("filler", &filler_path_, "Hide facts in passages of this text.").Metavar("FILE");
    flags
        .Add("length", &lengths_,
             "Tokens of a context; may be repeated. By default 250, 500 and 1000.")
        .Unit("tokens")
        .Range(16, 1 << 24);
    flags.Add("contexts", &maker_.cases, "Contexts of each length.").Range(1, 100'000);
    flags.Add("facts", &maker_.facts, "Facts in each context.").Range(1, 10'000);
    flags
        .Add("words-of", &words_path_,
             "Take keys and answers from these prepared cases; without it any word of one token.")
        .Metavar("FILE");
    flags.Add("case-seed", &maker_.seed, "The same seed makes the same cases.");
    flags.Add("save", &save_path_, "Also write the made cases to this file.").Metavar("FILE");
    eval_.Declare(flags);
    eviction_.Declare(flags);
    flags.Example(
        "quire eval recall -m models/probe/probe-f16.gguf --cases models/probe/cases.jsonl",
        "What f16 forgets, measured with the bundled recall model");
    flags.Example("quire eval recall -m model.gguf --filler book.txt --length 4000 --save my.jsonl",
                  "New cases for another model");
    flags.Example(
        "quire eval recall -m models/probe/probe-f16.gguf --cases models/probe/cases.jsonl "
        "--questions 5 --kv-eviction h2o,snapkv",
        "What is forgotten with a fifth of the tokens");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(options_.variants, Variants());
    QUIRE_RETURN_IF_ERROR(CheckSource());
    QUIRE_ASSIGN_OR_RETURN(std::string text,
                           ReadText(cases_path_.empty() ? filler_path_ : cases_path_));
    QUIRE_ASSIGN_OR_RETURN(const RunningModel running, eval_.LoadModel(context.terminal));
    QUIRE_ASSIGN_OR_RETURN(const std::vector<eval::RecallCase> cases,
                           Cases(std::move(text), *running.model));
    const auto questions = eval::QuestionCount(cases, options_);
    ProgressBar bar(context.terminal,
                    {.label = "recall",
                     .total = questions * static_cast<int64_t>(options_.variants.size()),
                     .unit = "questions"});
    QUIRE_ASSIGN_OR_RETURN(const std::vector<eval::RecallScore> scores,
                           eval::MeasureRecall(*running.model, cases, options_, *running.team,
                                               [&](int64_t done) { bar.Update(done); }));
    QUIRE_RETURN_IF_ERROR(Plot(scores));
    if (!context.json) return WriteOut(AsTables(scores));
    json::array codecs;
    for (const eval::RecallScore& score : scores) codecs.push_back(AsJson(score));
    return WriteJson({{"model", running.model->name()},
                      {"contexts", cases.size()},
                      {"questions", questions},
                      {"codecs", std::move(codecs)}});
  }

 private:
  // Each codec beside f32, or with each policy beside the full cache.
  Result<std::vector<eval::KvVariant>> Variants() const {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<eval::EvictionVariant> evictions,
                           eviction_.Variants());
    std::vector<eval::KvVariant> variants;
    if (evictions.empty()) {
      QUIRE_ASSIGN_OR_RETURN(variants, eval_.Variants());
      QUIRE_ASSIGN_OR_RETURN(eval::KvVariant reference, eval_.Reference());
      variants.insert(variants.begin(), std::move(reference));
      return variants;
    }
    QUIRE_ASSIGN_OR_RETURN(const std::vector<eval::KvVariant> codecs, eval_.Codecs());
    for (const eval::KvVariant& codec : codecs) {
      variants.push_back(codec);
      for (const eval::EvictionVariant& eviction : evictions) {
        variants.push_back(codec);
        variants.back().eviction = eviction;
      }
    }
    return variants;
  }

  Status CheckSource() const {
    if (cases_path_.empty() == filler_path_.empty()) {
      return Error{ErrorKind::kUsage,
                   "give prepared cases with --cases FILE, or a text to hide facts in with "
                   "--filler FILE",
                   "cases"};
    }
    if (filler_path_.empty() && !(save_path_.empty() && words_path_.empty())) {
      return Error{ErrorKind::kUsage,
                   "--save and --words-of are for made cases; they need --filler", "filler"};
    }
    return Ok{};
  }

  Result<std::vector<eval::RecallCase>> Cases(std::string text,
                                              const engine::LoadedModel& model) const {
    if (!cases_path_.empty()) {
      return eval::ParseRecallCases(text, cases_path_, model.config().vocab_size);
    }
    QUIRE_ASSIGN_OR_RETURN(text, FirstBytes(std::move(text), 0, filler_path_));
    eval::RecallMaker maker = maker_;
    if (!lengths_.empty()) maker.lengths = lengths_;
    if (!words_path_.empty()) {
      QUIRE_ASSIGN_OR_RETURN(const std::string words, ReadText(words_path_));
      QUIRE_ASSIGN_OR_RETURN(maker.like,
                             eval::ParseRecallCases(words, words_path_, model.config().vocab_size));
    }
    QUIRE_ASSIGN_OR_RETURN(std::vector<eval::RecallCase> cases,
                           eval::MakeRecallCases(model.tokenizer(), text, maker));
    if (!save_path_.empty()) {
      std::ofstream out(save_path_, std::ios::binary);
      out << eval::FormatRecallCases(cases);
      out.flush();
      if (!out) return MakeError(ErrorKind::kIo, "cannot write '{}'", save_path_);
    }
    return cases;
  }

  // Of a whole sequence where tokens are given up, else of a token.
  Status Plot(const std::vector<eval::RecallScore>& scores) const {
    const bool evictions = AnyEvicts(scores);
    std::vector<PlotPoint> points;
    for (const eval::RecallScore& score : scores) {
      const double tokens = evictions ? score.tokens_kept : 1;
      points.push_back(
          {evictions ? fmt::format("{}, {}", score.variant.name, NameOf(score.variant.eviction))
                     : score.variant.name,
           tokens * score.cost.bytes_per_token, score.total.mean_nll()});
    }
    return eval_.WritePlot({.title = "Recall against KV memory",
                            .x_axis = evictions ? "KV bytes per sequence" : "KV bytes per token",
                            .y_axis = "mean negative log likelihood of the answers, nats"},
                           points);
  }

  EvalFlags eval_;
  EvalEvictionFlags eviction_;
  std::string cases_path_;
  std::string filler_path_;
  std::string save_path_;
  std::string words_path_;
  std::vector<int> lengths_;
  eval::RecallMaker maker_;
  eval::RecallOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeEvalRecallCommand() {
  return std::make_unique<EvalRecallCommand>();
}

}  // namespace quire::cli
