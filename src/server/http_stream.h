// HttpStream: the bytes of one connection, by TCP or by TLS over it. What a connection does is the
// same for both.
//
// At most one read and one write at a time. Buffers, and the stream itself, must live until the
// operation's callback has run; Close makes pending ones run with an error. Callbacks come from the
// I/O loop, except that Handshake's may run inside the call.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>

namespace quire::server {

class HttpStream {
 public:
  using Done = std::function<void(boost::system::error_code)>;
  using Transferred = std::function<void(boost::system::error_code, size_t)>;
  enum class CloseMode {
    kOrderly,  // the client gets all that was written
    kReset,    // the client sees that something is missing
  };

  virtual ~HttpStream() = default;
  virtual void Handshake(Done done) = 0;
  virtual void ReadSome(boost::asio::mutable_buffer buffer, Transferred done) = 0;
  virtual void WriteSome(boost::asio::const_buffer buffer, Transferred done) = 0;
  // Nothing more will be written; the client sees the end, and may still send.
  virtual void EndWriting(Done done) = 0;
  virtual void Close(CloseMode mode) = 0;
  // The client has ended its side, whether or not what it sent before has been read.
  virtual bool has_hung_up() = 0;
};

std::unique_ptr<HttpStream> MakeTcpStream(boost::asio::ip::tcp::socket socket);
std::unique_ptr<HttpStream> MakeTlsStream(boost::asio::ip::tcp::socket socket,
                                          boost::asio::ssl::context& context);

}  // namespace quire::server
