// API keys: who may use the server, and which tenant's cached prefixes a request may share.
//
// Only digests of keys are kept. Keys are compared in a time that does not depend on them, and
// never appear in messages. Immutable after creation.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http_exchange.h"

namespace quire::server {

struct Tenant {
  std::string cache_salt;  // of requests that name none; each key has its own unless told otherwise
};

// The salt of a tenant's request that names `salt` itself (or none): whatever it names, tenants
// with different salts share nothing.
inline std::string SaltOf(const Tenant& tenant, const std::string& salt) {
  return tenant.cache_salt.empty() ? salt : tenant.cache_salt + '\n' + salt;
}

class ApiKeys {
 public:
  // No keys: everyone may enter, as the tenant without a salt.
  ApiKeys() = default;

  // `keys` as given by flags, and the text of a file: a key a line, optionally a second word, the
  // key's cache salt; `#` starts a comment. Keys with equal salts share prefixes.
  static Result<ApiKeys> Create(std::span<const std::string> keys, std::string_view file_text);
  // `path` empty: no file.
  static Result<ApiKeys> Load(std::span<const std::string> keys, const std::string& path);

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }

  // Who asks: by `Authorization: Bearer KEY` or `x-api-key: KEY`. nullopt: the key is missing or
  // none of these (401).
  std::optional<Tenant> Authenticate(const HttpRequest& request) const;

 private:
  using Digest = std::array<unsigned char, 32>;  // SHA-256
  struct Entry {
    Digest digest;
    Tenant tenant;
  };
  static Digest DigestOf(std::string_view prefix, std::string_view key);
  Status Add(std::string_view key, std::string_view salt);

  std::vector<Entry> entries_;
};

}  // namespace quire::server
