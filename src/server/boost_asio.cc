// The bodies of Boost.Asio's and Boost.Beast's functions, compiled here once; the macros that keep
// them out of every other file are set for the whole target in CMakeLists.txt.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/beast/src.hpp>
