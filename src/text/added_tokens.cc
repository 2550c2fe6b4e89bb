#include "text/added_tokens.h"

#include <algorithm>

#include <unicode/uchar.h>

#include "text/utf8.h"

namespace quire::text {
namespace {

bool IsWordCharacter(char32_t character) {
  return character == '_' || u_isalnum(static_cast<UChar32>(character));
}

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  size_t before = begin;
  size_t after = end;
  return (begin > 0 && IsWordCharacter(PreviousCharacter(text, before))) ||
         (end < text.size() && IsWordCharacter(NextCharacter(text, after)));
}

// Where the white space that ends at `end` starts, not before `limit`.
size_t SpaceStart(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    size_t previous = end;
    if (!IsWhiteSpace(PreviousCharacter(text, previous))) break;
    end = previous;
  }
  return end;
}

size_t SpaceEnd(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    size_t next = begin;
    if (!IsWhiteSpace(NextCharacter(text, next))) break;
    begin = next;
  }
  return begin;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    if (token.content.empty() || !IsValidUtf8(token.content)) continue;
    all_.Insert(token.content, static_cast<int32_t>(i));
    if (!token.special) not_special_.Insert(token.content, static_cast<int32_t>(i));
  }
}

void AddedTokens::ForEachSection(std::string_view text, Find find,
                                 base::FunctionRef<void(const Section&)> visit) const {
  const ByteTrie& trie = find == Find::kAll ? all_ : not_special_;
  size_t done = 0;
  size_t position = 0;
  while (position < text.size()) {
    const std::optional<ByteTrie::Match> match = trie.LongestMatch(text, position);
    if (!match) {
      ++position;
      continue;
    }
    const AddedToken& token = tokens_[match->value];
    size_t begin = position;
    size_t end = position + match->length;
    if (token.single_word && TouchesWord(text, begin, end)) {
      position = end;
      continue;
    }
    if (token.lstrip) begin = SpaceStart(text, begin, done);
    if (token.rstrip) end = SpaceEnd(text, end);
    if (done < begin) visit({done, begin, std::nullopt});
    visit({begin, end, token.id});
    done = position = end;
  }
  if (done < text.size()) visit({done, text.size(), std::nullopt});
}

}  // namespace quire::text
