// SequenceText: from a sequence's tokens to the text, tokens and logprobs that may be sent,
// aligned.
//
// Text is held back while it is an incomplete character or could become a stop string; the tokens
// that made it wait with it. A copy is a snapshot.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "engine/output.h"
#include "text/stop_matcher.h"
#include "text/stream_decoder.h"

namespace quire::engine {

class SequenceText {
 public:
  struct Options {
    text::DecodeOptions decode;
    text::StopStrings stop_strings;
    text::StopText stop_text = text::StopText::kExclude;
    int min_tokens = 0;  // stop strings count only in text beyond these
  };
  SequenceText(const text::Tokenizer& tokenizer, const Options& options);

  // The next token of the sequence; what became certain is added to `update`.
  void Append(TokenId token, std::optional<TokenLogprobs> logprobs, SequenceUpdate& update);

  // A token that ends the sequence and is not part of its text.
  void AppendSilently(TokenId token, std::optional<TokenLogprobs> logprobs);

  // No token follows: everything held back is added to `update`.
  void Finish(SequenceUpdate& update);

  // Which stop string ended the text, if one did.
  std::optional<int> stopped_at() const { return matcher_.stopped_at(); }

 private:
  struct Pending {
    TokenId token;
    std::optional<TokenLogprobs> logprobs;
    size_t text_end;  // bytes of decoded text up to and including this token's
  };
  void Release(const Pending& pending, SequenceUpdate& update);

  text::StreamDecoder decoder_;
  text::StopMatcher matcher_;
  int min_tokens_;
  int tokens_ = 0;
  size_t decoded_bytes_ = 0;   // given by the decoder
  size_t released_bytes_ = 0;  // given to updates
  std::deque<Pending> pending_;
};

}  // namespace quire::engine
