// NllTally: negative log likelihoods of a text's tokens, each beside what the reference gave it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace quire::eval {

class NllTally {
 public:
  // Of one token, in nats.
  void Add(double nll, double reference) {
    const double rise = nll - reference;
    nll_ += nll;
    rise_ += rise;
    rise_squared_ += rise * rise;
    ++count_;
  }

  int64_t count() const { return count_; }
  double mean() const { return nll_ / Divisor(); }
  double perplexity() const { return std::exp(mean()); }
  // perplexity / perplexity of the reference - 1.
  double rise() const { return std::expm1(MeanRise()); }
  // The standard error of rise(), from the scatter of the tokens' differences.
  double rise_error() const {
    const double variance = std::max(rise_squared_ / Divisor() - MeanRise() * MeanRise(), 0.0);
    return std::exp(MeanRise()) * std::sqrt(variance / Divisor());
  }

 private:
  double Divisor() const { return static_cast<double>(std::max<int64_t>(count_, 1)); }
  double MeanRise() const { return rise_ / Divisor(); }

  double nll_ = 0;
  double rise_ = 0;
  double rise_squared_ = 0;
  int64_t count_ = 0;
};

}  // namespace quire::eval
