#include "server/api_keys.h"

#include <algorithm>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "text/read_file.h"

namespace quire::server {
namespace {

constexpr size_t kKeyBytesMax = 1024;
constexpr size_t kSaltBytes = 16;  // of a key's own salt, before it is written in hexadecimal
// Digests of keys and salts made of keys are prefixed apart, so that a salt, which may be shown,
// says nothing about the digest that a key is compared with.
constexpr std::string_view kKeyPrefix = "quire api key:";
constexpr std::string_view kSaltPrefix = "quire cache salt:";

bool IsVisibleAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// The words of a line, up to one that starts a comment. A '#' within a word is part of it: keys may
// have one.
// Of a line of a file: `#` begins a comment.
std::vector<std::string_view> Words(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  std::vector<std::string_view> words;
  for (size_t begin = line.find_first_not_of(kSpace); begin != std::string_view::npos;) {
    if (line[begin] == '#') break;
    const size_t end = line.find_first_of(kSpace, begin);
    words.push_back(line.substr(begin, end == std::string_view::npos ? end : end - begin));
    begin = end == std::string_view::npos ? end : line.find_first_not_of(kSpace, end);
  }
  return words;
}

// The key that a request presents; nullopt: none.
std::optional<std::string_view> PresentedKey(const HttpRequest& request) {
  if (const auto authorization = request.Header("Authorization")) {
    constexpr std::string_view kScheme = "bearer ";
    const std::string_view scheme = authorization->substr(0, kScheme.size());
    if (std::equal(scheme.begin(), scheme.end(), kScheme.begin(), kScheme.end(),
                   [](char a, char b) { return (a | 0x20) == b; })) {
      const std::string_view key = authorization->substr(kScheme.size());
      const size_t begin = std::min(key.find_first_not_of(' '), key.size());
      return key.substr(begin, key.find_last_not_of(" \t") + 1 - begin);
    }
  }
  return request.Header("x-api-key");
}

}  // namespace

ApiKeys::Digest ApiKeys::DigestOf(std::string_view prefix, std::string_view key) {
  const std::string text = std::string(prefix).append(key);
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

Status ApiKeys::Add(std::string_view key, std::string_view salt) {
  if (key.empty() || key.size() > kKeyBytesMax || !IsVisibleAscii(key)) {
    return MakeError(ErrorKind::kUsage, "it must be 1 to {} visible ASCII characters",
                     kKeyBytesMax);
  }
  if (salt.size() > kKeyBytesMax || !IsVisibleAscii(salt)) {
    return MakeError(ErrorKind::kUsage,
                     "its cache salt must be visible ASCII characters, {} at most", kKeyBytesMax);
  }
  Entry entry{DigestOf(kKeyPrefix, key), {std::string(salt)}};
  if (salt.empty()) {
    const Digest own = DigestOf(kSaltPrefix, key);
    for (size_t i = 0; i < kSaltBytes; ++i) {
      entry.tenant.cache_salt += fmt::format("{:02x}", own[i]);
    }
  }
  for (const Entry& other : entries_) {
    if (other.digest != entry.digest) continue;
    if (other.tenant.cache_salt == entry.tenant.cache_salt) return Ok{};
    return MakeError(ErrorKind::kUsage, "the same key is there before with another cache salt");
  }
  entries_.push_back(std::move(entry));
  return Ok{};
}

Result<ApiKeys> ApiKeys::Create(std::span<const std::string> keys, std::string_view file_text) {
  ApiKeys result;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (const Status added = result.Add(keys[i], ""); !added.ok()) {
      return MakeError(added.error().kind, "API key {} of the flags: {}", i + 1,
                       added.error().message);
    }
  }
  int line_number = 0;
  while (!file_text.empty()) {
    const size_t end = file_text.find('\n');
    const std::string_view line = file_text.substr(0, end);
    file_text.remove_prefix(end == std::string_view::npos ? file_text.size() : end + 1);
    ++line_number;
    const std::vector<std::string_view> words = Words(line);
    if (words.empty()) continue;
    if (words.size() > 2) {
      return MakeError(ErrorKind::kInvalid,
                       "line {} of the API key file has {} words; a line is a key and, if it is "
                       "to have one of its own, its cache salt",
                       line_number, words.size());
    }
    const Status added = result.Add(words[0], words.size() == 2 ? words[1] : std::string_view());
    if (!added.ok()) {
      return MakeError(ErrorKind::kInvalid, "the key in line {} of the API key file: {}",
                       line_number, added.error().message);
    }
  }
  return result;
}

Result<ApiKeys> ApiKeys::Load(std::span<const std::string> keys, const std::string& path) {
  if (path.empty()) return Create(keys, "");
  QUIRE_ASSIGN_OR_RETURN(const std::string text, text::ReadFile(path));
  QUIRE_ASSIGN_OR_RETURN(ApiKeys result, Create(keys, text));
  if (result.empty()) {
    // Whoever names a file wants the server closed; an empty one must not open it to everybody.
    return MakeError(ErrorKind::kInvalid, "the API key file {} has no key in it", path);
  }
  return result;
}

std::optional<Tenant> ApiKeys::Authenticate(const HttpRequest& request) const {
  if (entries_.empty()) return Tenant{};
  const auto key = PresentedKey(request);
  if (!key || key->size() > kKeyBytesMax) return std::nullopt;
  const Digest digest = DigestOf(kKeyPrefix, *key);
  const Entry* found = nullptr;
  // To the end whatever is found, so that the time tells nothing.
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  if (found == nullptr) return std::nullopt;
  return found->tenant;
}

}  // namespace quire::server
