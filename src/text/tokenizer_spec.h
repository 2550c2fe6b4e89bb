// TokenizerSpec: everything a tokenizer is made of, as plain data.
//
// The readers of files (tokenizer_json.h, sentencepiece_model.h, gguf_tokenizer_fields.h) fill one;
// Tokenizer::Create checks it and builds the tokenizer. Nothing here is checked yet.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"

namespace quire::text {

enum class TokenizerKind {
  kSentencePieceBpe,  // tokens are UTF-8 with U+2581 for a space; unknown characters become bytes
  kByteLevelBpe,      // tokens spell bytes in the GPT-2 alphabet (byte_alphabet.h)
};

// The numbers are those of SentencePiece's files and of GGUF.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never produced from text unless asked for, hidden from text on request
  kUserDefined = 4,  // always taken as a whole
  kUnused = 5,       // may exist while merging, never in the result
  kByte = 6,         // <0xAB>: one byte of a character that has no token
};

// Text that is one token wherever it occurs. Special tokens are found only on request.
struct AddedToken {
  TokenId id = 0;
  std::string content = {};
  bool special = false;
  bool lstrip = false;       // takes the white space to its left with it
  bool rstrip = false;       // and to its right
  bool single_word = false;  // only where no letter or digit touches it
  bool normalized = false;   // looked for after normalization, else before
};

// --- Normalization: text to text, in order ---
struct PrependStep {
  std::string prefix = {};  // put before any text that is not empty
};
struct ReplaceStep {
  std::string pattern = {};  // a literal, or a regular expression
  std::string content = {};
  bool is_regex = false;
};
enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };
struct UnicodeStep {
  UnicodeForm form = UnicodeForm::kNfc;
};
struct StripStep {
  bool left = false;
  bool right = false;
};
// Which stretches of text between added tokens get a space put before them.
enum class PrependScheme { kNever, kFirst, kAlways };
// What SentencePiece does to a sentence before it splits it.
struct SentencePieceStep {
  PrependScheme dummy_prefix = PrependScheme::kAlways;
  bool remove_extra_whitespaces = false;
  bool escape_whitespaces = true;  // ' ' becomes U+2581
  bool whitespace_as_suffix = false;
  std::string charsmap = {};  // precompiled_charsmap of the model file; empty: identity
};
using NormalizerStep =
    std::variant<PrependStep, ReplaceStep, UnicodeStep, StripStep, SentencePieceStep>;

// --- Pre-tokenization: text to words; merges never cross a word ---
enum class SplitBehavior {
  kIsolated,
  kRemoved,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // neighbouring matches form one word
};
// Where a stretch of text stands in the text that is encoded.
enum class SectionPlace { kFirst, kLater };

struct SplitStep {
  std::string pattern = {};  // regular expression
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // words are what matches, separators what does not
};
struct PrefixSpaceStep {};  // a word that does not start with a space gets one
struct ByteLevelStep {
  bool add_prefix_space = false;
  bool use_regex = true;  // split as GPT-2 does
};
struct MetaspaceStep {
  std::string replacement = "\xe2\x96\x81";
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
};
using PretokenizerStep = std::variant<SplitStep, PrefixSpaceStep, ByteLevelStep, MetaspaceStep>;

struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::kSentencePieceBpe;
  std::vector<std::string> tokens;  // by id, as the file spells them
  std::vector<TokenType> types;     // as many as tokens, or none: all normal
  // What decides the next merge: the scores of the tokens (higher first), or where there are
  // merges, their order. One of them is empty.
  std::vector<float> scores;
  std::vector<std::pair<std::string, std::string>> merges;

  std::vector<NormalizerStep> normalizer;
  std::vector<PretokenizerStep> pretokenizer;
  std::vector<AddedToken> added_tokens;

  bool ignore_merges = false;        // a word that is a token is that token, whatever the merges
  bool byte_fallback = false;        // SentencePiece: an unknown character becomes byte tokens
  bool fuse_unknown = true;          // a run of unknown characters is one unknown token
  bool strip_leading_space = false;  // Decode drops the dummy prefix

  std::optional<TokenId> bos, eos, unk, pad;
  std::vector<TokenId> end_tokens;  // besides eos: end of turn, end of message
  // What EncodeOptions::add_special puts around a text.
  std::vector<TokenId> prefix_tokens;
  std::vector<TokenId> suffix_tokens;
};

}  // namespace quire::text
