#include "text/tokenizer_json_steps.h"

#include "text/utf8.h"

namespace quire::text {
namespace {

namespace json = boost::json;

constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^`|~])";

Error Unsupported(std::string_view part, std::string_view type, std::string_view supported) {
  return MakeError(ErrorKind::kUnsupported,
                   "tokenizer.json has a {} of type '{}', which is not supported; supported are {}",
                   part, type, supported);
}

// A literal as a regular expression.
std::string Escaped(std::string_view literal) {
  std::string pattern;
  for (const char c : literal) {
    if (std::string_view("\\^$.[]|()?*+{}-").find(c) != std::string_view::npos) {
      pattern.push_back('\\');
    }
    pattern.push_back(c);
  }
  return pattern;
}

struct Pattern {
  std::string text;
  bool is_regex = false;
};

// {"String": "..."} or {"Regex": "..."}.
Result<Pattern> ReadPattern(const json::value& step) {
  if (const json::value* pattern = Member(step, "pattern")) {
    if (const auto regex = StringMember(*pattern, "Regex"))
      return Pattern{std::string(*regex), true};
    if (const auto text = StringMember(*pattern, "String"))
      return Pattern{std::string(*text), false};
  }
  return MakeError(ErrorKind::kInvalid, "tokenizer.json has a {} without a pattern", TypeOf(step));
}

Result<SplitBehavior> ReadBehavior(const json::value& step, SplitBehavior otherwise) {
  const std::optional<std::string_view> name = StringMember(step, "behavior");
  if (!name) return otherwise;
  if (*name == "Isolated") return SplitBehavior::kIsolated;
  if (*name == "Removed") return SplitBehavior::kRemoved;
  if (*name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (*name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (*name == "Contiguous") return SplitBehavior::kContiguous;
  return MakeError(ErrorKind::kInvalid, "tokenizer.json has a split behaviour '{}'", *name);
}

Status AddReplace(const json::value& step, TokenizerSpec& spec) {
  QUIRE_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(step));
  spec.normalizer.emplace_back(
      ReplaceStep{.pattern = std::move(pattern.text),
                  .content = std::string(StringMember(step, "content").value_or("")),
                  .is_regex = pattern.is_regex});
  return Ok{};
}

Status AddSplit(const json::value& step, TokenizerSpec& spec) {
  QUIRE_ASSIGN_OR_RETURN(Pattern pattern, ReadPattern(step));
  QUIRE_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                         ReadBehavior(step, SplitBehavior::kIsolated));
  spec.pretokenizer.emplace_back(
      SplitStep{.pattern = pattern.is_regex ? std::move(pattern.text) : Escaped(pattern.text),
                .behavior = behavior,
                .invert = BoolMember(step, "invert").value_or(false)});
  return Ok{};
}

void AddMetaspace(const json::value& step, TokenizerSpec& spec) {
  MetaspaceStep metaspace;
  if (const auto replacement = StringMember(step, "replacement")) {
    metaspace.replacement = *replacement;
  }
  const std::string_view scheme = StringMember(step, "prepend_scheme").value_or("");
  if (scheme == "never" ||
      (scheme.empty() && !BoolMember(step, "add_prefix_space").value_or(true))) {
    metaspace.prepend = PrependScheme::kNever;
  } else if (scheme == "first") {
    metaspace.prepend = PrependScheme::kFirst;
  }
  metaspace.split = BoolMember(step, "split").value_or(true);
  spec.pretokenizer.emplace_back(std::move(metaspace));
}

// The ids a template's special token stands for.
Status AddTemplateToken(const json::value& processor, std::string_view name,
                        std::vector<TokenId>& ids) {
  const json::value* tokens = Member(processor, "special_tokens");
  const json::value* token = tokens == nullptr ? nullptr : Member(*tokens, name);
  const json::array* token_ids = token == nullptr ? nullptr : ArrayMember(*token, "ids");
  if (token_ids == nullptr) {
    return MakeError(ErrorKind::kInvalid,
                     "tokenizer.json's template names the token '{}' but not its ids", name);
  }
  for (const json::value& id : *token_ids) {
    ids.push_back(static_cast<TokenId>(AsInt(id).value_or(-1)));
  }
  return Ok{};
}

Status AddTemplate(const json::value& processor, TokenizerSpec& spec) {
  const json::array* single = ArrayMember(processor, "single");
  if (single == nullptr) {
    return MakeError(ErrorKind::kInvalid, "tokenizer.json has a template without 'single'");
  }
  bool before_text = true;
  for (const json::value& part : *single) {
    if (Member(part, "Sequence") != nullptr) {
      before_text = false;
    } else if (const json::value* token = Member(part, "SpecialToken")) {
      QUIRE_RETURN_IF_ERROR(
          AddTemplateToken(processor, StringMember(*token, "id").value_or(""),
                           before_text ? spec.prefix_tokens : spec.suffix_tokens));
    }
  }
  return Ok{};
}

// ["</s>", 2]
Status AddPairId(const json::value& processor, std::string_view key, std::vector<TokenId>& ids) {
  const json::array* pair = ArrayMember(processor, key);
  const std::optional<int64_t> id =
      pair != nullptr && pair->size() == 2 ? AsInt((*pair)[1]) : std::nullopt;
  if (!id) {
    return MakeError(ErrorKind::kInvalid, "tokenizer.json's post-processor has no '{}'", key);
  }
  ids.push_back(static_cast<TokenId>(*id));
  return Ok{};
}

// Calls add(part) for each part of a Sequence, whose array is named differently in each place.
template <typename Add>
Status ForEachPart(const json::value& sequence, std::string_view key, Add add) {
  const json::array* parts = ArrayMember(sequence, key);
  if (parts == nullptr) {
    return MakeError(ErrorKind::kInvalid, "tokenizer.json has a Sequence without '{}'", key);
  }
  for (const json::value& part : *parts) QUIRE_RETURN_IF_ERROR(add(part));
  return Ok{};
}

}  // namespace

Status AddNormalizer(const json::value& normalizer, TokenizerSpec& spec) {
  if (normalizer.is_null()) return Ok{};
  const std::string_view type = TypeOf(normalizer);
  if (type == "Sequence") {
    return ForEachPart(normalizer, "normalizers",
                       [&](const json::value& part) { return AddNormalizer(part, spec); });
  }
  if (type == "Replace") return AddReplace(normalizer, spec);
  if (type == "Prepend") {
    spec.normalizer.emplace_back(
        PrependStep{std::string(StringMember(normalizer, "prepend").value_or(""))});
  } else if (type == "Strip") {
    spec.normalizer.emplace_back(
        StripStep{.left = BoolMember(normalizer, "strip_left").value_or(true),
                  .right = BoolMember(normalizer, "strip_right").value_or(true)});
  } else if (type == "NFC") {
    spec.normalizer.emplace_back(UnicodeStep{UnicodeForm::kNfc});
  } else if (type == "NFD") {
    spec.normalizer.emplace_back(UnicodeStep{UnicodeForm::kNfd});
  } else if (type == "NFKC") {
    spec.normalizer.emplace_back(UnicodeStep{UnicodeForm::kNfkc});
  } else if (type == "NFKD") {
    spec.normalizer.emplace_back(UnicodeStep{UnicodeForm::kNfkd});
  } else {
    return Unsupported("normalizer", type,
                       "Sequence, Prepend, Replace, Strip, NFC, NFD, NFKC, NFKD");
  }
  return Ok{};
}

Status AddPretokenizer(const json::value& pretokenizer, TokenizerSpec& spec) {
  if (pretokenizer.is_null()) return Ok{};
  const std::string_view type = TypeOf(pretokenizer);
  if (type == "Sequence") {
    return ForEachPart(pretokenizer, "pretokenizers",
                       [&](const json::value& part) { return AddPretokenizer(part, spec); });
  }
  if (type == "Split") return AddSplit(pretokenizer, spec);
  if (type == "Metaspace") {
    AddMetaspace(pretokenizer, spec);
  } else if (type == "ByteLevel") {
    spec.kind = TokenizerKind::kByteLevelBpe;
    spec.pretokenizer.emplace_back(ByteLevelStep{
        .add_prefix_space = BoolMember(pretokenizer, "add_prefix_space").value_or(true),
        .use_regex = BoolMember(pretokenizer, "use_regex").value_or(true)});
  } else if (type == "Digits") {
    const bool each = BoolMember(pretokenizer, "individual_digits").value_or(false);
    spec.pretokenizer.emplace_back(
        SplitStep{.pattern = std::string(kDigit),
                  .behavior = each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    QUIRE_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                           ReadBehavior(pretokenizer, SplitBehavior::kIsolated));
    spec.pretokenizer.emplace_back(
        SplitStep{.pattern = std::string(kPunctuation), .behavior = behavior});
  } else if (type == "Whitespace") {
    spec.pretokenizer.emplace_back(SplitStep{.pattern = R"([\w\p{M}]+|[^\w\s\p{M}]+)",
                                             .behavior = SplitBehavior::kRemoved,
                                             .invert = true});
  } else if (type == "WhitespaceSplit") {
    spec.pretokenizer.emplace_back(
        SplitStep{.pattern = R"(\s)", .behavior = SplitBehavior::kRemoved});
  } else {
    return Unsupported("pre-tokenizer", type,
                       "Sequence, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, "
                       "ByteLevel, Metaspace");
  }
  return Ok{};
}

Status AddPostProcessor(const json::value& processor, TokenizerSpec& spec) {
  if (processor.is_null()) return Ok{};
  const std::string_view type = TypeOf(processor);
  if (type == "Sequence") {
    return ForEachPart(processor, "processors",
                       [&](const json::value& part) { return AddPostProcessor(part, spec); });
  }
  if (type == "TemplateProcessing") return AddTemplate(processor, spec);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    QUIRE_RETURN_IF_ERROR(AddPairId(processor, "cls", spec.prefix_tokens));
    return AddPairId(processor, "sep", spec.suffix_tokens);
  }
  if (type == "ByteLevel") return Ok{};  // only moves offsets
  return Unsupported("post-processor", type,
                     "Sequence, TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel");
}

AddedToken ReadAddedToken(const json::value& object) {
  const auto flag = [&](std::string_view key) { return BoolMember(object, key).value_or(false); };
  return {.content = std::string(StringMember(object, "content").value_or("")),
          .special = flag("special"),
          .lstrip = flag("lstrip"),
          .rstrip = flag("rstrip"),
          .single_word = flag("single_word"),
          .normalized = flag("normalized")};
}

}  // namespace quire::text
