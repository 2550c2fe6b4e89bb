#include "text/sentencepiece_model.h"

#include <algorithm>

#include "text/protobuf_reader.h"
#include "text/read_file.h"

namespace quire::text {
namespace {

struct TrainerSpec {
  uint64_t model_type = 1;  // unigram, the format's default
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string_view unk_piece = "<unk>";
  std::string_view bos_piece = "<s>";
  std::string_view eos_piece = "</s>";
  std::string_view pad_piece = "<pad>";
};

Error Damaged(std::string_view part) {
  return MakeError(ErrorKind::kInvalid, "this is no SentencePiece model: its {} is damaged", part);
}

Status ParsePiece(std::string_view message, TokenizerSpec& spec) {
  std::string_view text;
  float score = 0;
  TokenType type = TokenType::kNormal;
  ProtobufReader reader(message);
  while (const auto field = reader.Next()) {
    if (field->number == 1) text = field->bytes;
    if (field->number == 2) score = field->AsFloat().value_or(0);
    if (field->number == 3) {
      if (field->integer < 1 || field->integer > 6) return Damaged("list of pieces");
      type = static_cast<TokenType>(field->integer);
    }
  }
  if (reader.damaged()) return Damaged("list of pieces");
  spec.tokens.emplace_back(text);
  spec.scores.push_back(score);
  spec.types.push_back(type);
  return Ok{};
}

Status ParseTrainerSpec(std::string_view message, TrainerSpec& trainer) {
  ProtobufReader reader(message);
  while (const auto field = reader.Next()) {
    switch (field->number) {
      case 3:
        trainer.model_type = field->integer;
        break;
      case 24:
        trainer.whitespace_as_suffix = field->integer != 0;
        break;
      case 35:
        trainer.byte_fallback = field->integer != 0;
        break;
      case 45:
        trainer.unk_piece = field->bytes;
        break;
      case 46:
        trainer.bos_piece = field->bytes;
        break;
      case 47:
        trainer.eos_piece = field->bytes;
        break;
      case 48:
        trainer.pad_piece = field->bytes;
        break;
      default:
        break;
    }
  }
  if (reader.damaged()) return Damaged("trainer_spec");
  return Ok{};
}

Status ParseNormalizerSpec(std::string_view message, SentencePieceStep& step) {
  ProtobufReader reader(message);
  while (const auto field = reader.Next()) {
    switch (field->number) {
      case 2:
        step.charsmap = std::string(field->bytes);
        break;
      case 3:
        step.dummy_prefix = field->integer != 0 ? PrependScheme::kAlways : PrependScheme::kNever;
        break;
      case 4:
        step.remove_extra_whitespaces = field->integer != 0;
        break;
      case 5:
        step.escape_whitespaces = field->integer != 0;
        break;
      default:
        break;
    }
  }
  if (reader.damaged()) return Damaged("normalizer_spec");
  return Ok{};
}

Status CheckModelType(uint64_t type) {
  constexpr std::string_view kNames[] = {"unknown", "unigram", "BPE", "word", "character"};
  if (type == 2) return Ok{};
  return MakeError(ErrorKind::kUnsupported,
                   "the SentencePiece model is of type {}; only BPE is supported",
                   kNames[type < std::size(kNames) ? type : 0]);
}

std::optional<TokenId> FindPiece(const TokenizerSpec& spec, std::string_view piece,
                                 TokenType type) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.types[id] == type && spec.tokens[id] == piece) return static_cast<TokenId>(id);
  }
  return std::nullopt;
}

void SetSpecialTokens(const TrainerSpec& trainer, TokenizerSpec& spec) {
  const auto unknown = std::find(spec.types.begin(), spec.types.end(), TokenType::kUnknown);
  if (unknown != spec.types.end()) {
    spec.unk = static_cast<TokenId>(unknown - spec.types.begin());
  }
  spec.bos = FindPiece(spec, trainer.bos_piece, TokenType::kControl);
  spec.eos = FindPiece(spec, trainer.eos_piece, TokenType::kControl);
  spec.pad = FindPiece(spec, trainer.pad_piece, TokenType::kControl);
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.types[id] != TokenType::kControl && spec.types[id] != TokenType::kUnknown) continue;
    spec.added_tokens.push_back(
        {.id = static_cast<TokenId>(id), .content = spec.tokens[id], .special = true});
  }
}

}  // namespace

Result<TokenizerSpec> ParseSentencePieceModel(std::string_view bytes) {
  TokenizerSpec spec;
  spec.kind = TokenizerKind::kSentencePieceBpe;
  TrainerSpec trainer;
  SentencePieceStep step{.remove_extra_whitespaces = true};  // the format's default
  ProtobufReader reader(bytes);
  while (const auto field = reader.Next()) {
    if (field->number == 1) QUIRE_RETURN_IF_ERROR(ParsePiece(field->bytes, spec));
    if (field->number == 2) QUIRE_RETURN_IF_ERROR(ParseTrainerSpec(field->bytes, trainer));
    if (field->number == 3) QUIRE_RETURN_IF_ERROR(ParseNormalizerSpec(field->bytes, step));
  }
  if (reader.damaged()) return Damaged("outermost message");
  if (spec.tokens.empty()) return Damaged("list of pieces");
  QUIRE_RETURN_IF_ERROR(CheckModelType(trainer.model_type));
  step.whitespace_as_suffix = trainer.whitespace_as_suffix;
  spec.byte_fallback = trainer.byte_fallback;
  spec.strip_leading_space =
      step.dummy_prefix != PrependScheme::kNever || step.remove_extra_whitespaces;
  spec.normalizer.emplace_back(std::move(step));
  SetSpecialTokens(trainer, spec);
  // What Hugging Face's tokenizers of this kind do unless tokenizer_config.json says otherwise.
  if (spec.bos) spec.prefix_tokens = {*spec.bos};
  return spec;
}

Result<TokenizerSpec> LoadSentencePieceModel(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return ParseSentencePieceModel(bytes);
}

}  // namespace quire::text
