// quire template: renders a chat template, to see what a model is really given.
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include <boost/json.hpp>

#include "cli/commands.h"
#include "cli/default_model.h"
#include "engine/model_loader.h"
#include "model/model_files.h"
#include "text/chat_template.h"

namespace quire::cli {
namespace {

// "2026-07-26" or "2026-07-26 13:45:00".
Result<std::tm> ParseTime(const std::string& text) {
  std::tm time{};
  const char* end = strptime(text.c_str(), "%Y-%m-%d", &time);
  if (end != nullptr && *end != '\0') end = strptime(end, " %H:%M:%S", &time);
  if (end == nullptr || *end != '\0') {
    return MakeError(ErrorKind::kUsage,
                     "now is '{}'; a date such as 2026-07-26 or 2026-07-26 13:45:00 is expected.",
                     text);
  }
  return time;
}

class TemplateCommand : public Command {
 public:
  std::string_view name() const override { return "template"; }
  std::string_view summary() const override {
    return "Renders a chat template: the text that a conversation becomes.";
  }

  void Declare(base::FlagSet& flags) override {
    model_.Declare(flags);
    flags.Add("file", &file_, "A Jinja template instead of the model's own.")
        .Short('f')
        .Metavar("FILE");
    flags
        .Add("input", &input_,
             "JSON object with `messages` and whatever else the template may see (tools, "
             "add_generation_prompt, ...; `now` as the date of strftime_now); - is stdin.")
        .Short('i')
        .Metavar("FILE")
        .Required();
    flags.Add("now", &now_, "What strftime_now formats: 2026-07-26 or 2026-07-26 13:45:00.")
        .Metavar("TIME");
    flags.Add("bos-token", &bos_, "With --file: the template's bos_token.").Metavar("TEXT");
    flags.Add("eos-token", &eos_, "With --file: the template's eos_token.").Metavar("TEXT");
    flags.Example("quire template --file chat.jinja --input conversation.json",
                  "A template of your own");
    flags.Example(
        "echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}' | quire "
        "template -m model.gguf -i -",
        "What a model is given");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(boost::json::object args, ReadArguments());
    text::jinja::RenderOptions options;
    QUIRE_ASSIGN_OR_RETURN(options.now, Now(args));
    QUIRE_ASSIGN_OR_RETURN(text::ChatTemplate chat, OpenTemplate());
    boost::json::array messages = std::move(args["messages"].as_array());
    args.erase("messages");
    QUIRE_ASSIGN_OR_RETURN(std::string text, chat.Render(messages, args, options));
    if (!context.json) return WriteOut(text);
    boost::json::object result;
    result["text"] = text;
    return WriteJson(result);
  }

 private:
  Result<boost::json::object> ReadArguments() const {
    QUIRE_ASSIGN_OR_RETURN(std::string text, ReadText(input_));
    boost::system::error_code error;
    boost::json::value parsed = boost::json::parse(text, error);
    if (error || !parsed.is_object()) {
      return MakeError(ErrorKind::kInvalid, "{} is no JSON object{}.", input_,
                       error ? ": " + error.message() : "");
    }
    boost::json::object args = parsed.as_object();
    // A whole test case carries its arguments inside.
    if (const auto* inner = args.if_contains("args"); inner != nullptr && inner->is_object()) {
      args = boost::json::object(inner->as_object());
    }
    const auto* messages = args.if_contains("messages");
    if (messages == nullptr || !messages->is_array()) {
      return MakeError(ErrorKind::kInvalid, "{} has no list `messages`.", input_);
    }
    return args;
  }

  // The flag wins over the input's `now`.
  Result<std::optional<std::tm>> Now(const boost::json::object& args) const {
    std::string text = now_;
    const auto* given = args.if_contains("now");
    if (text.empty() && given != nullptr && given->is_string()) text = given->as_string().c_str();
    if (text.empty()) return std::optional<std::tm>();
    QUIRE_ASSIGN_OR_RETURN(std::tm time, ParseTime(text));
    return std::optional<std::tm>(time);
  }

  Result<text::ChatTemplate> OpenTemplate() const {
    if (!file_.empty()) {
      QUIRE_ASSIGN_OR_RETURN(std::string source, ReadText(file_));
      return text::ChatTemplate::Create(std::move(source), bos_, eos_);
    }
    QUIRE_ASSIGN_OR_RETURN(std::string path, model_.Path());
    QUIRE_ASSIGN_OR_RETURN(model::ModelFiles files, model::ModelFiles::Open(path));
    QUIRE_ASSIGN_OR_RETURN(text::Tokenizer tokenizer, engine::LoadTokenizer(files));
    QUIRE_ASSIGN_OR_RETURN(std::optional<text::ChatTemplate> chat,
                           engine::LoadChatTemplate(files, tokenizer));
    if (!chat) {
      return MakeError(ErrorKind::kNotFound, "{} has no chat template; name one with --file.",
                       path);
    }
    return std::move(*chat);
  }

  ModelFlag model_;
  std::string file_;
  std::string input_;
  std::string now_;
  std::string bos_;
  std::string eos_;
};

}  // namespace

std::unique_ptr<Command> MakeTemplateCommand() {
  return std::make_unique<TemplateCommand>();
}

}  // namespace quire::cli
