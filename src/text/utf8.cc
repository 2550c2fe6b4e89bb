#include "text/utf8.h"

#include <algorithm>

namespace quire::text {
namespace {

enum class Sequence { kComplete, kPrefix, kIllFormed };

// What the `size` bytes at `bytes` are; all but the last are known to be a prefix.
Sequence Classify(const char* bytes, size_t size) {
  const uint8_t lead = static_cast<uint8_t>(bytes[0]);
  if (size == 1) {
    if (lead < 0x80) return Sequence::kComplete;
    return lead >= 0xc2 && lead <= 0xf4 ? Sequence::kPrefix : Sequence::kIllFormed;
  }
  const uint8_t last = static_cast<uint8_t>(bytes[size - 1]);
  uint8_t low = 0x80;
  uint8_t high = 0xbf;
  if (size == 2) {  // the second byte rules out overlong forms, surrogates and beyond U+10FFFF
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  }
  if (last < low || last > high) return Sequence::kIllFormed;
  return size == CharacterLength(bytes[0]) ? Sequence::kComplete : Sequence::kPrefix;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  size_t position = 0;
  while (position < text.size()) {
    size_t size = 1;
    while (true) {
      if (position + size > text.size()) return false;
      const Sequence sequence = Classify(text.data() + position, size);
      if (sequence == Sequence::kIllFormed) return false;
      if (sequence == Sequence::kComplete) break;
      ++size;
    }
    position += size;
  }
  return true;
}

std::string ToValidUtf8(std::string_view text) {
  if (IsValidUtf8(text)) return std::string(text);
  std::string out;
  out.reserve(text.size() + 16);
  Utf8Stream stream;
  stream.Append(text, out);
  stream.Finish(out);
  return out;
}

char32_t NextCharacter(std::string_view text, size_t& position) {
  const size_t length = CharacterLength(text[position]);
  const uint8_t lead = static_cast<uint8_t>(text[position]);
  char32_t character = length == 1 ? lead : lead & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    character = character << 6 | (static_cast<uint8_t>(text[position + i]) & 0x3f);
  }
  position += length;
  return character;
}

char32_t PreviousCharacter(std::string_view text, size_t& position) {
  do {
    --position;
  } while (position > 0 && (static_cast<uint8_t>(text[position]) & 0xc0) == 0x80);
  size_t start = position;
  return NextCharacter(text, start);
}

void AppendCharacter(char32_t character, std::string& out) {
  const auto continuation = [&](int shift) {
    out.push_back(static_cast<char>(0x80 | (character >> shift & 0x3f)));
  };
  if (character < 0x80) {
    out.push_back(static_cast<char>(character));
  } else if (character < 0x800) {
    out.push_back(static_cast<char>(0xc0 | character >> 6));
    continuation(0);
  } else if (character < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | character >> 12));
    continuation(6);
    continuation(0);
  } else {
    out.push_back(static_cast<char>(0xf0 | character >> 18));
    continuation(12);
    continuation(6);
    continuation(0);
  }
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

void Utf8Stream::Append(std::string_view bytes, std::string& out) {
  size_t i = 0;
  while (i < bytes.size()) {
    if (pending_size_ == 0) {
      size_t ascii_end = i;
      while (ascii_end < bytes.size() && static_cast<uint8_t>(bytes[ascii_end]) < 0x80) {
        ++ascii_end;
      }
      out.append(bytes.substr(i, ascii_end - i));
      i = ascii_end;
      if (i == bytes.size()) return;
    }
    AppendByte(bytes[i++], out);
  }
}

void Utf8Stream::AppendByte(char byte, std::string& out) {
  pending_[pending_size_++] = byte;
  switch (Classify(pending_.data(), pending_size_)) {
    case Sequence::kComplete:
      out.append(pending_.data(), pending_size_);
      pending_size_ = 0;
      return;
    case Sequence::kPrefix:
      return;
    case Sequence::kIllFormed:
      break;
  }
  const bool byte_stands_alone = pending_size_ == 1;
  pending_size_ = 0;
  out.append(kReplacementCharacter);
  if (!byte_stands_alone) AppendByte(byte, out);  // it may start a character of its own
}

void Utf8Stream::Finish(std::string& out) {
  if (pending_size_ > 0) out.append(kReplacementCharacter);
  pending_size_ = 0;
}

int64_t CountCharacters(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (byte & 0xC0) != 0x80; });
}

}  // namespace quire::text
