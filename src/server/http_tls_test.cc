// TLS: the same server behind a certificate that the test makes.
#include <cstdio>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "server/http_server.h"
#include "server/http_test_client.h"

namespace quire::server {
namespace {

using ::testing::HasSubstr;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using File = std::unique_ptr<std::FILE, Freer<std::fclose>>;

// A key and its self-signed certificate, in files that go with the object.
class TestCertificate {
 public:
  explicit TestCertificate(std::string_view name)
      : certfile_(fmt::format("{}quire_{}_{}.crt", ::testing::TempDir(), name, ::getpid())),
        keyfile_(fmt::format("{}quire_{}_{}.key", ::testing::TempDir(), name, ::getpid())) {
    const Key key(EVP_EC_gen("P-256"));
    const Certificate certificate(X509_new());
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key.get());
    X509_NAME* subject = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(certificate.get(), subject);
    EXPECT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
    PEM_write_X509(File(std::fopen(certfile_.c_str(), "w")).get(), certificate.get());
    PEM_write_PrivateKey(File(std::fopen(keyfile_.c_str(), "w")).get(), key.get(), nullptr, nullptr,
                         0, nullptr, nullptr);
  }
  ~TestCertificate() {
    std::remove(certfile_.c_str());
    std::remove(keyfile_.c_str());
  }

  const std::string& certfile() const { return certfile_; }
  const std::string& keyfile() const { return keyfile_; }

 private:
  std::string certfile_;
  std::string keyfile_;
};

// A blocking TLS client over the bytes of a TestClient's socket.
class TlsClient {
 public:
  TlsClient(uint16_t port, int version_max)
      : client_(port), context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_security_level(context_.get(), 0);  // so that old versions can be offered at all
    SSL_CTX_set_max_proto_version(context_.get(), version_max);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), client_.socket());
    connected_ = SSL_connect(ssl_.get()) == 1;
  }

  bool connected() const { return connected_; }
  int version() const { return SSL_version(ssl_.get()); }
  TestClient& tcp() { return client_; }

  void Write(std::string_view bytes) {
    SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  }
  std::string ReadThrough(std::string_view mark) {
    std::string text;
    while (text.find(mark) == std::string::npos && ReadSome(text)) {
    }
    return text;
  }
  std::string ReadToEnd() {
    std::string text;
    while (ReadSome(text)) {
    }
    return text;
  }
  // The server has said that nothing follows, so that what was read is known to be all.
  bool SawOrderlyEnd() const { return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }
  void EndWriting() { SSL_shutdown(ssl_.get()); }

 private:
  bool ReadSome(std::string& text) {
    char bytes[4096];
    const int got = SSL_read(ssl_.get(), bytes, sizeof(bytes));
    if (got > 0) text.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  TestClient client_;
  std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>> context_;
  std::unique_ptr<SSL, Freer<SSL_free>> ssl_;
  bool connected_ = false;
};

class HttpTlsTest : public ::testing::Test {
 protected:
  HttpTlsTest() : certificate_("tls") {
    server_.emplace(HttpOptions{.ssl_certfile = certificate_.certfile(),
                                .ssl_keyfile = certificate_.keyfile(),
                                .header_timeout_s = 0.5},
                    [this](auto exchange) {
                      if (exchange->request().path == "/large") {
                        return exchange->Respond({.body = std::string(3 << 20, 'x')});
                      }
                      if (exchange->request().path != "/endless") {
                        return exchange->Respond({.body = exchange->request().body});
                      }
                      exchange->StartStream({.content_type = "text/event-stream"});
                      exchange->Send("data: 1\n\n");
                      exchange->OnClosed([this] { ++closed_; });
                      held_ = std::move(exchange);
                    });
  }
  void TearDown() override {
    server_->OnIoThread([&] { held_.reset(); });
    server_.reset();
  }

  TestCertificate certificate_;
  std::optional<TestServer> server_;
  std::shared_ptr<Exchange> held_;
  int closed_ = 0;
};

TEST_F(HttpTlsTest, ServesByTls12And13AndByNothingOlder) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server_->port(), version);
    ASSERT_TRUE(client.connected());
    EXPECT_EQ(client.version(), version);
    client.Write(Post("/a", "first"));
    EXPECT_THAT(client.ReadThrough("first"), HasSubstr("\r\n\r\nfirst"));
    client.Write(Post("/a", "second"));
    EXPECT_THAT(client.ReadThrough("second"), HasSubstr("\r\n\r\nsecond"));
  }
  EXPECT_FALSE(TlsClient(server_->port(), TLS1_1_VERSION).connected());
}

TEST_F(HttpTlsTest, LargeAnswersArriveWholeAndTheEndIsOrderly) {
  TlsClient client(server_->port(), TLS1_3_VERSION);
  client.Write("GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string all = client.ReadToEnd();
  EXPECT_GT(all.size(), size_t{3} << 20);
  EXPECT_TRUE(client.SawOrderlyEnd());
  client.EndWriting();
  client.tcp().Close();
  EXPECT_TRUE(
      server_->Eventually([&] { return server_->server().statistics().connections_open == 0; }));
}

TEST_F(HttpTlsTest, AClientThatGoesAwayClosesItsExchangeHoweverItGoes) {
  for (int way = 0; way < 3; ++way) {
    TlsClient client(server_->port(), TLS1_3_VERSION);
    client.Write(Get("/endless"));
    EXPECT_THAT(client.ReadThrough("data: 1"), HasSubstr("text/event-stream"));
    if (way == 0) client.EndWriting();
    if (way == 1) client.tcp().Close();
    if (way == 2) client.tcp().Reset();
    EXPECT_TRUE(server_->Eventually([&] { return closed_ == way + 1; })) << way;
  }
  EXPECT_EQ(server_->statistics().connections_open, 0);
}

TEST_F(HttpTlsTest, AHandshakeThatStallsIsCutOff) {
  TestClient silent(server_->port());
  EXPECT_EQ(silent.ReadToEnd(), "");
  TestClient plain(server_->port());
  plain.Write(Get("/"));
  EXPECT_THAT(plain.ReadToEnd(), ::testing::Not(HasSubstr("HTTP/1.1 200")));
  EXPECT_EQ(server_->statistics().requests, 0u);
}

TEST(HttpTlsListen, ACertificateWithAnotherKeyIsAnError) {
  const TestCertificate one("one"), other("other");
  boost::asio::io_context io;
  HttpServer server(io, {.port = 0, .ssl_certfile = one.certfile(), .ssl_keyfile = other.keyfile()},
                    [](auto) {});
  const Status listening = server.Listen();
  ASSERT_FALSE(listening.ok());
  EXPECT_THAT(listening.error().message, HasSubstr("cannot be used as --ssl-keyfile"));
  EXPECT_EQ(listening.error().param, "ssl_keyfile");
}

}  // namespace
}  // namespace quire::server
