// quire tokenize, quire detokenize: text to token ids and back, with a model's tokenizer.
#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "cli/commands.h"
#include "cli/default_model.h"
#include "engine/model_loader.h"
#include "model/model_files.h"
#include "text/tokenizer.h"

namespace quire::cli {
namespace {

Result<text::Tokenizer> TokenizerOf(const ModelFlag& model) {
  QUIRE_ASSIGN_OR_RETURN(std::string path, model.Path());
  QUIRE_ASSIGN_OR_RETURN(model::ModelFiles files, model::ModelFiles::Open(path));
  return engine::LoadTokenizer(files);
}

// The argument, else the file, else stdin.
Result<std::string> InputText(const std::string& argument, const std::string& file) {
  if (!file.empty()) {
    if (!argument.empty()) {
      return MakeError(ErrorKind::kUsage, "give either an argument or --file, not both.");
    }
    return ReadText(file);
  }
  if (!argument.empty()) return argument;
  return ReadText("-");
}

boost::json::array AsJson(const std::vector<TokenId>& tokens) {
  boost::json::array array;
  for (TokenId token : tokens) array.push_back(token);
  return array;
}

class TokenizeCommand : public Command {
 public:
  std::string_view name() const override { return "tokenize"; }
  std::string_view summary() const override { return "Prints the token ids of a text."; }

  void Declare(base::FlagSet& flags) override {
    flags.Positional("TEXT", &text_, "The text; without it and without --file, stdin is read.");
    model_.Declare(flags);
    flags.Add("file", &file_, "Read the text from a file, all of it as it is; - is stdin.")
        .Short('f')
        .Metavar("FILE");
    flags.Add("add-special", &options_.add_special,
              "Add the special tokens that the model expects around a text (such as BOS).");
    flags.Add("parse-special", &options_.parse_special,
              "Read control tokens spelled in the text (such as <|im_start|>) as those tokens.");
    flags.Add("pieces", &pieces_, "One token a line: its id and its text.");
    flags.Example("quire tokenize \"Once upon a time\"", "The ids, separated by spaces");
    flags.Example("quire tokenize -m model.gguf --file prompt.txt --json",
                  "Ids and pieces as JSON");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(text::Tokenizer tokenizer, TokenizerOf(model_));
    QUIRE_ASSIGN_OR_RETURN(std::string text, InputText(text_, file_));
    std::vector<TokenId> tokens = tokenizer.Encode(text, options_);
    if (context.json) {
      boost::json::array pieces;
      for (TokenId token : tokens) pieces.emplace_back(tokenizer.TokenPiece(token));
      boost::json::object result;
      result["count"] = tokens.size();
      result["tokens"] = AsJson(tokens);
      result["pieces"] = std::move(pieces);
      return WriteJson(result);
    }
    std::string out;
    for (TokenId token : tokens) {
      if (pieces_) {
        out += fmt::format("{:>8}  {}\n", token, tokenizer.TokenPiece(token));
      } else {
        out += fmt::format("{}{}", out.empty() ? "" : " ", token);
      }
    }
    if (!pieces_) out += '\n';
    return WriteOut(out);
  }

 private:
  std::string text_;
  std::string file_;
  ModelFlag model_;
  text::EncodeOptions options_;
  bool pieces_ = false;
};

class DetokenizeCommand : public Command {
 public:
  std::string_view name() const override { return "detokenize"; }
  std::string_view summary() const override { return "Prints the text of token ids."; }

  void Declare(base::FlagSet& flags) override {
    flags.Positional("ID", &ids_, "Token ids; without them and without --file, stdin is read.");
    model_.Declare(flags);
    flags.Add("file", &file_, "Read the ids from a file, separated by spaces, commas or lines.")
        .Short('f')
        .Metavar("FILE");
    flags.Add("skip-special", &options_.skip_special, "Leave control tokens out of the text.");
    flags.Example("quire detokenize 1 403 407", "The text of three tokens");
    flags.Example("quire tokenize \"a text\" | quire detokenize", "There and back");
  }

  Status Run(const CommandContext& context) override {
    QUIRE_ASSIGN_OR_RETURN(text::Tokenizer tokenizer, TokenizerOf(model_));
    std::string joined;
    for (const std::string& id : ids_) joined += id + " ";
    QUIRE_ASSIGN_OR_RETURN(std::string input, InputText(joined, file_));
    QUIRE_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, ParseIds(input, tokenizer.vocab_size()));
    std::string text = tokenizer.Decode(tokens, options_);
    if (context.json) {
      boost::json::object result;
      result["text"] = text;
      result["tokens"] = AsJson(tokens);
      return WriteJson(result);
    }
    // Exactly the text where a program reads it.
    return WriteOut(context.terminal.stdout_is_terminal() ? text + "\n" : text);
  }

 private:
  static Result<std::vector<TokenId>> ParseIds(std::string_view input, int vocab_size) {
    constexpr std::string_view kSeparators = " \t\r\n,[]";
    std::vector<TokenId> tokens;
    for (size_t at = input.find_first_not_of(kSeparators); at != std::string_view::npos;) {
      size_t end = std::min(input.find_first_of(kSeparators, at), input.size());
      std::string_view word = input.substr(at, end - at);
      TokenId token = 0;
      auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), token);
      if (error != std::errc() || stop != word.data() + word.size() || token < 0 ||
          token >= vocab_size) {
        return MakeError(ErrorKind::kInvalid,
                         "'{}' is no token id; this vocabulary has the ids 0 to {}.", word,
                         vocab_size - 1);
      }
      tokens.push_back(token);
      at = input.find_first_not_of(kSeparators, end);
    }
    return tokens;
  }

  std::vector<std::string> ids_;
  std::string file_;
  ModelFlag model_;
  text::DecodeOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeTokenizeCommand() {
  return std::make_unique<TokenizeCommand>();
}
std::unique_ptr<Command> MakeDetokenizeCommand() {
  return std::make_unique<DetokenizeCommand>();
}

}  // namespace quire::cli
