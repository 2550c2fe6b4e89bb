#include "engine/sequence_text.h"

#include <utility>

namespace quire::engine {

SequenceText::SequenceText(const text::Tokenizer& tokenizer, const Options& options)
    : decoder_(tokenizer, options.decode),
      matcher_(options.stop_strings, options.stop_text),
      min_tokens_(options.min_tokens) {}

void SequenceText::Append(TokenId token, std::optional<TokenLogprobs> logprobs,
                          SequenceUpdate& update) {
  std::string decoded;
  decoder_.Append(token, decoded);
  decoded_bytes_ += decoded.size();
  pending_.push_back({token, std::move(logprobs), decoded_bytes_});

  const size_t before = update.text.size();
  if (++tokens_ < min_tokens_) {
    matcher_.Pass(decoded, update.text);
  } else {
    matcher_.Append(decoded, update.text);
  }
  released_bytes_ += update.text.size() - before;
  while (!pending_.empty() && pending_.front().text_end <= released_bytes_ &&
         !decoder_.HoldsBack()) {
    Release(pending_.front(), update);
    pending_.pop_front();
  }
}

void SequenceText::AppendSilently(TokenId token, std::optional<TokenLogprobs> logprobs) {
  ++tokens_;
  pending_.push_back({token, std::move(logprobs), decoded_bytes_});
}

void SequenceText::Finish(SequenceUpdate& update) {
  if (!matcher_.stopped()) {
    std::string rest;
    decoder_.Finish(rest);
    if (matcher_.Append(rest, update.text)) matcher_.Finish(update.text);
  }
  for (const Pending& pending : pending_) Release(pending, update);
  pending_.clear();
}

void SequenceText::Release(const Pending& pending, SequenceUpdate& update) {
  update.tokens.push_back(pending.token);
  if (pending.logprobs) update.logprobs.push_back(*pending.logprobs);
}

}  // namespace quire::engine
