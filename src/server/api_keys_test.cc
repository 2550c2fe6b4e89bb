// Who is let in, and as which tenant.
#include "server/api_keys.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ApiKeys Keys(std::vector<std::string> keys, std::string_view file = "") {
  Result<ApiKeys> created = ApiKeys::Create(keys, file);
  EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.error().message);
  return created.ok() ? *created : ApiKeys();
}

std::string ErrorOf(std::vector<std::string> keys, std::string_view file = "") {
  const Result<ApiKeys> created = ApiKeys::Create(keys, file);
  EXPECT_FALSE(created.ok());
  return created.ok() ? "" : created.error().message;
}

// The salt of who presents `value` in `header`; nullopt: not let in.
std::optional<std::string> Salt(const ApiKeys& keys, std::string header, std::string value) {
  HttpRequest request;
  request.headers = {{"Host", "a"}, {std::move(header), std::move(value)}};
  const auto tenant = keys.Authenticate(request);
  if (!tenant) return std::nullopt;
  return tenant->cache_salt;
}

TEST(ApiKeys, WithoutKeysEveryoneEntersWithoutASalt) {
  EXPECT_EQ(ApiKeys().Authenticate({})->cache_salt, "");
  EXPECT_EQ(Salt(Keys({}, "# none\n\n"), "x-api-key", "anything"), "");
}

TEST(ApiKeys, AKeyIsPresentedAsBearerOrAsXApiKey) {
  const ApiKeys keys = Keys({"alpha", "beta"});
  for (const char* key : {"alpha", "beta"}) {
    EXPECT_TRUE(Salt(keys, "Authorization", std::string("Bearer ") + key));
    EXPECT_TRUE(Salt(keys, "authorization", std::string("bearer  ") + key));
    EXPECT_TRUE(Salt(keys, "X-Api-Key", key));
  }
  for (const char* value : {"", "alpha", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa",
                            "Bearer ALPHA", "Basic alpha", "Bearer alpha beta"}) {
    EXPECT_FALSE(Salt(keys, "Authorization", value)) << value;
  }
  EXPECT_FALSE(Salt(keys, "x-api-key", ""));
  EXPECT_FALSE(Salt(keys, "x-api-key", std::string(100'000, 'a')));
  EXPECT_FALSE(Salt(keys, "x-other", "alpha"));
}

TEST(ApiKeys, EachKeyHasItsOwnSaltUnlessTheFileSaysOtherwise) {
  const ApiKeys keys = Keys({"flag"},
                            "# tenants\r\n"
                            "  one\n"
                            "two  team # together\n"
                            "three\tteam\r\n"
                            "with#sharp\n"
                            "last");
  EXPECT_EQ(keys.size(), 6u);
  EXPECT_EQ(Salt(keys, "x-api-key", "two"), "team");
  EXPECT_EQ(Salt(keys, "x-api-key", "three"), "team");
  EXPECT_TRUE(Salt(keys, "x-api-key", "with#sharp"));
  EXPECT_FALSE(Salt(keys, "x-api-key", "with"));
  const std::string one = *Salt(keys, "x-api-key", "one");
  EXPECT_EQ(one.size(), 32u);
  EXPECT_NE(one, *Salt(keys, "x-api-key", "flag"));
  EXPECT_NE(one, *Salt(keys, "x-api-key", "last"));
  // A restart keeps salts: what a tenant has cached on disk stays its own.
  EXPECT_EQ(one, *Salt(Keys({"one"}), "x-api-key", "one"));
}

TEST(ApiKeys, MistakesAreErrorsThatDoNotShowTheKey) {
  const std::string two_words = ErrorOf({"secret key"});
  EXPECT_THAT(two_words, HasSubstr("API key 1 of the flags"));
  EXPECT_THAT(two_words, Not(HasSubstr("secret")));
  EXPECT_THAT(ErrorOf({""}), HasSubstr("visible ASCII"));
  EXPECT_THAT(ErrorOf({}, "a\nsecret b c\n"), HasSubstr("line 2 of the API key file has 3 words"));
  EXPECT_THAT(ErrorOf({}, "secr\xc3\xa9t"), Not(HasSubstr("secr\xc3\xa9t")));
  EXPECT_THAT(ErrorOf({}, std::string("a\0b", 3)), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf({}, "secret x\nsecret y"), HasSubstr("another cache salt"));
  EXPECT_EQ(Keys({"twice", "twice"}, "twice\n").size(), 1u);
}

TEST(ApiKeys, AFileWithoutKeysDoesNotOpenTheServer) {
  const std::string path = ::testing::TempDir() + "quire_api_keys_test";
  std::ofstream(path) << "# nothing yet\n";
  const Result<ApiKeys> empty = ApiKeys::Load({}, path);
  ASSERT_FALSE(empty.ok());
  EXPECT_THAT(empty.error().message, HasSubstr("has no key in it"));
  std::ofstream(path) << "key salt\n";
  EXPECT_EQ(Salt(*ApiKeys::Load({}, path), "x-api-key", "key"), "salt");
  std::remove(path.c_str());
  EXPECT_FALSE(ApiKeys::Load({}, path).ok());
  EXPECT_TRUE(ApiKeys::Load({}, "").ok());
}

}  // namespace
}  // namespace quire::server
