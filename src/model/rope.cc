#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire::model {
namespace {

// Llama 3.1: long wavelengths are divided by the factor, short ones kept, those between blended.
double ScaleLlama3(double frequency, const RopeConfig& config) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double low_wavelength = config.original_context / config.low_freq_factor;
  const double high_wavelength = config.original_context / config.high_freq_factor;
  if (wavelength < high_wavelength) return frequency;
  if (wavelength > low_wavelength) return frequency / config.factor;
  const double kept = (config.original_context / wavelength - config.low_freq_factor) /
                      (config.high_freq_factor - config.low_freq_factor);
  return (1.0 - kept) * frequency / config.factor + kept * frequency;
}

// YaRN section 3.2: the pair at which the context holds `rotations` full turns.
double CorrectionPair(double rotations, const RopeConfig& config) {
  return config.dims * std::log(config.original_context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(config.theta));
}

double ScaleYarn(double frequency, int pair, const RopeConfig& config) {
  const double low = std::max(0.0, std::floor(CorrectionPair(config.beta_fast, config)));
  const double high =
      std::min(config.dims - 1.0, std::ceil(CorrectionPair(config.beta_slow, config)));
  const double ramp = std::clamp((pair - low) / std::max(0.001, high - low), 0.0, 1.0);
  return frequency * (1.0 - ramp) + frequency / config.factor * ramp;
}

double AttentionFactor(const RopeConfig& config) {
  if (config.attention_factor != 0.0) return config.attention_factor;
  if (config.factor <= 1.0) return 1.0;
  if (config.scaling == RopeScaling::kYarn) return 1.0 + 0.1 * std::log(config.factor);
  if (config.scaling == RopeScaling::kLongRope) {
    return std::sqrt(1.0 + std::log(config.factor) / std::log(config.original_context));
  }
  return 1.0;
}

}  // namespace

Rope::Rope(const RopeConfig& config, int max_positions) : magnitude_(AttentionFactor(config)) {
  const bool beyond_original =
      config.scaling == RopeScaling::kLongRope && max_positions > config.original_context;
  const std::vector<float>& factors =
      beyond_original && !config.long_factors.empty() ? config.long_factors : config.short_factors;
  frequencies_.resize(config.dims / 2);
  for (int pair = 0; pair < pairs(); ++pair) {
    double frequency = std::pow(config.theta, -2.0 * pair / config.dims);
    if (!factors.empty()) frequency /= factors[pair];
    switch (config.scaling) {
      case RopeScaling::kNone:
      case RopeScaling::kLongRope:
        break;
      case RopeScaling::kLinear:
        frequency /= config.factor;
        break;
      case RopeScaling::kLlama3:
        // A file that brings the divisors as a tensor has applied the rule already.
        if (factors.empty()) frequency = ScaleLlama3(frequency, config);
        break;
      case RopeScaling::kYarn:
        frequency = ScaleYarn(frequency, pair, config);
        break;
    }
    frequencies_[pair] = frequency;
  }
}

void Rope::Angles(int position, std::span<float> cos, std::span<float> sin) const {
  for (int pair = 0; pair < pairs(); ++pair) {
    const double angle = position * frequencies_[pair];
    cos[pair] = static_cast<float>(std::cos(angle) * magnitude_);
    sin[pair] = static_cast<float>(std::sin(angle) * magnitude_);
  }
}

}  // namespace quire::model
