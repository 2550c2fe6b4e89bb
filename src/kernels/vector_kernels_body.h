// The bodies of the vector kernels, written once over a SIMD wrapper S (simd_scalar.h). Included by
// vector_{scalar,avx2,avx512,neon}.cc only, inside their instruction set's region; every other
// header must have been included before.
#pragma once

namespace quire::kernels {
namespace {

using std::int64_t;

template <typename S>
typename S::F LoadUpTo(const float* p, int64_t n, float fill) {
  return n >= S::kWidth ? S::Load(p) : S::LoadPart(p, n, fill);
}

template <typename S>
void StoreUpTo(float* p, int64_t n, typename S::F x) {
  if (n >= S::kWidth) {
    S::Store(p, x);
  } else {
    S::StorePart(p, n, x);
  }
}

template <typename S>
float SumOfSquares(const float* x, int64_t count) {
  PartialSums<S> sums;
  sums.Clear();
  int64_t i = 0;
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (int k = 0; k < sums.kRegisters; ++k) {
      typename S::F v = S::Load(x + i + k * S::kWidth);
      sums.part[k] = S::Fma(v, v, sums.part[k]);
    }
  }
  for (int k = 0; i < count; ++k, i += S::kWidth) {
    typename S::F v = LoadUpTo<S>(x + i, count - i, 0.0f);
    sums.part[k] = S::Fma(v, v, sums.part[k]);
  }
  return sums.Total();
}

template <typename S>
void RmsNormRow(const float* x, const float* weight, float eps, MatrixView<float> out_row) {
  int64_t count = out_row.cols;
  float mean = SumOfSquares<S>(x, count) / static_cast<float>(count);
  typename S::F inverse = S::Set(1.0f / __builtin_sqrtf(mean + eps));
  for (int64_t i = 0; i < count; i += S::kWidth) {
    typename S::F normed = S::Mul(LoadUpTo<S>(x + i, count - i, 0.0f), inverse);
    StoreUpTo<S>(out_row.data + i, count - i,
                 S::Mul(normed, LoadUpTo<S>(weight + i, count - i, 0.0f)));
  }
}

template <typename S>
void RmsNorm(MatrixView<const float> x, const float* weight, float eps, MatrixView<float> out) {
  QUIRE_CHECK(x.rows == out.rows && x.cols == out.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    RmsNormRow<S>(x.data + r * x.stride, weight, eps, {out.data + r * out.stride, 1, out.cols});
  }
}

template <typename S>
void RmsNormHeads(MatrixView<float> x, const float* weight, int64_t head_dim, float eps) {
  QUIRE_CHECK(head_dim > 0 && x.cols % head_dim == 0);
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t c = 0; c < x.cols; c += head_dim) {
      float* head = x.data + r * x.stride + c;
      RmsNormRow<S>(head, weight, eps, {head, 1, head_dim});
    }
  }
}

// (a, b) = (a cos - b sin, b cos + a sin)
template <typename S>
[[gnu::always_inline]] inline void Rotate(typename S::F& a, typename S::F& b, typename S::F cos,
                                          typename S::F sin) {
  typename S::F rotated = S::NegFma(b, sin, S::Mul(a, cos));
  b = S::Fma(a, sin, S::Mul(b, cos));
  a = rotated;
}

template <typename S>
void RopeHalvesHead(float* head, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i += S::kWidth) {
    int64_t left = pairs - i;
    typename S::F a = LoadUpTo<S>(head + i, left, 0.0f);
    typename S::F b = LoadUpTo<S>(head + pairs + i, left, 0.0f);
    Rotate<S>(a, b, LoadUpTo<S>(cos + i, left, 0.0f), LoadUpTo<S>(sin + i, left, 0.0f));
    StoreUpTo<S>(head + i, left, a);
    StoreUpTo<S>(head + pairs + i, left, b);
  }
}

template <typename S>
void RopeAdjacentHead(float* head, const float* cos, const float* sin, int64_t pairs) {
  int64_t i = 0;
  for (; i + S::kWidth <= pairs; i += S::kWidth) {
    typename S::F a, b;
    S::LoadPairs(head + 2 * i, a, b);
    Rotate<S>(a, b, S::Load(cos + i), S::Load(sin + i));
    S::StorePairs(head + 2 * i, a, b);
  }
  for (; i < pairs; ++i) {
    float a = head[2 * i];
    float b = head[2 * i + 1];
    head[2 * i] = __builtin_fmaf(-b, sin[i], a * cos[i]);
    head[2 * i + 1] = __builtin_fmaf(a, sin[i], b * cos[i]);
  }
}

using RopeHead = void (*)(float* head, const float* cos, const float* sin, int64_t pairs);

template <typename S, RopeHead kHead>
void Rope(MatrixView<float> x, const RopeRows& rows) {
  int64_t pairs = rows.cos.cols;
  QUIRE_CHECK(rows.cos.rows == x.rows && rows.sin.rows == x.rows && rows.sin.cols == pairs);
  QUIRE_CHECK(rows.head_dim > 0 && x.cols % rows.head_dim == 0 && 2 * pairs <= rows.head_dim);
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* cos = rows.cos.data + r * rows.cos.stride;
    const float* sin = rows.sin.data + r * rows.sin.stride;
    for (int64_t c = 0; c < x.cols; c += rows.head_dim) {
      kHead(x.data + r * x.stride + c, cos, sin, pairs);
    }
  }
}

// Elementwise operations: Op::Apply(inputs...) on whole registers.
struct SiluMul {
  template <typename S>
  [[gnu::always_inline]] static inline typename S::F Apply(typename S::F gate, typename S::F up) {
    return S::Mul(S::Mul(gate, Sigmoid<S>(gate)), up);
  }
};

// x rounded to the 11 significant bits of binary16 (Dekker's splitting, exact for |x| < 2^114).
template <typename S>
[[gnu::always_inline]] inline typename S::F RoundToHalfPrecision(typename S::F x) {
  typename S::F scaled = S::Mul(x, S::Set(8193.0f));  // 2^13 + 1
  return S::Sub(scaled, S::Sub(scaled, x));
}

// The engines that GGUF models with GELU are published for look it up by a binary16 argument in a
// table of binary16 results; without the two roundings logits differ from theirs by 1e-4.
struct GeluTanhMul {
  template <typename S>
  [[gnu::always_inline]] static inline typename S::F Apply(typename S::F gate, typename S::F up) {
    gate = RoundToHalfPrecision<S>(gate);
    // 2 sqrt(2/pi) (g + 0.044715 g^3) = g (1.5957691 + 0.0713548 g^2)
    typename S::F u2 =
        S::Mul(gate, S::Fma(S::Mul(gate, gate), S::Set(0.0713548163f), S::Set(1.59576912f)));
    return S::Mul(RoundToHalfPrecision<S>(S::Mul(gate, Sigmoid<S>(u2))), up);
  }
};

struct AddRows {
  template <typename S>
  [[gnu::always_inline]] static inline typename S::F Apply(typename S::F x, typename S::F y) {
    return S::Add(x, y);
  }
};

template <typename S, typename Op>
void Binary(MatrixView<const float> a, MatrixView<const float> b, MatrixView<float> out) {
  QUIRE_CHECK(a.rows == out.rows && a.cols == out.cols && b.rows == out.rows && b.cols == out.cols);
  for (int64_t r = 0; r < out.rows; ++r) {
    const float* pa = a.data + r * a.stride;
    const float* pb = b.data + r * b.stride;
    float* po = out.data + r * out.stride;
    for (int64_t i = 0; i < out.cols; i += S::kWidth) {
      int64_t left = out.cols - i;
      typename S::F result =
          Op::template Apply<S>(LoadUpTo<S>(pa + i, left, 0.0f), LoadUpTo<S>(pb + i, left, 0.0f));
      StoreUpTo<S>(po + i, left, result);
    }
  }
}

template <typename S>
void Add(MatrixView<float> x, MatrixView<const float> y) {
  Binary<S, AddRows>(x, y, x);
}

struct Softcap {
  template <typename S>
  [[gnu::always_inline]] static inline typename S::F Apply(typename S::F x, float cap) {
    return S::Mul(Tanh<S>(S::Div(x, S::Set(cap))), S::Set(cap));
  }
};

struct Scale {
  template <typename S>
  [[gnu::always_inline]] static inline typename S::F Apply(typename S::F x, float factor) {
    return S::Mul(x, S::Set(factor));
  }
};

struct ExpOf {
  template <typename S>
  [[gnu::always_inline]] static inline typename S::F Apply(typename S::F x, float) {
    return Exp<S>(x);
  }
};

struct TanhOf {
  template <typename S>
  [[gnu::always_inline]] static inline typename S::F Apply(typename S::F x, float) {
    return Tanh<S>(x);
  }
};

template <typename S, typename Op>
void InPlace(MatrixView<float> x, float parameter) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = x.data + r * x.stride;
    for (int64_t i = 0; i < x.cols; i += S::kWidth) {
      typename S::F result =
          Op::template Apply<S>(LoadUpTo<S>(row + i, x.cols - i, 0.0f), parameter);
      StoreUpTo<S>(row + i, x.cols - i, result);
    }
  }
}

template <typename S, typename Op>
void InPlaceAlone(MatrixView<float> x) {
  InPlace<S, Op>(x, 0.0f);
}

constexpr float kMinusInfinity = -__builtin_inff();

template <typename S>
float MaxOf(const float* x, int64_t count) {
  typename S::F max = S::Set(kMinusInfinity);
  for (int64_t i = 0; i < count; i += S::kWidth) {
    max = S::Max(LoadUpTo<S>(x + i, count - i, kMinusInfinity), max);  // a NaN leaves max
  }
  return S::MaxLanes(max);
}

template <typename S>
void SoftmaxRow(float* x, int64_t count) {
  typename S::F max = S::Set(MaxOf<S>(x, count));
  PartialSums<S> sums;
  sums.Clear();
  for (int64_t i = 0; i < count; i += kSumLanes) {
    for (int k = 0; k < sums.kRegisters; ++k) {
      int64_t at = i + k * S::kWidth;
      if (at >= count) break;
      typename S::F e = Exp<S>(S::Sub(LoadUpTo<S>(x + at, count - at, kMinusInfinity), max));
      StoreUpTo<S>(x + at, count - at, e);
      sums.part[k] = S::Add(sums.part[k], e);
    }
  }
  typename S::F total = S::Set(sums.Total());
  for (int64_t i = 0; i < count; i += S::kWidth) {
    typename S::F p = S::Div(LoadUpTo<S>(x + i, count - i, 0.0f), total);
    StoreUpTo<S>(x + i, count - i, p);
  }
}

template <typename S>
void Softmax(MatrixView<float> x) {
  for (int64_t r = 0; r < x.rows; ++r) SoftmaxRow<S>(x.data + r * x.stride, x.cols);
}

template <typename S>
RowMax FindRowMax(const float* x, int64_t count) {
  QUIRE_CHECK(count >= 1);
  typename S::F max = S::Set(kMinusInfinity);
  uint32_t nan = 0;
  int64_t done = 0;
  // Four chains, so that none waits for its last maximum.
  constexpr int kChains = 4;
  if (count >= kChains * S::kWidth) {
    typename S::F chains[kChains] = {max, max, max, max};
    for (; done + kChains * S::kWidth <= count; done += kChains * S::kWidth) {
      for (int c = 0; c < kChains; ++c) {
        typename S::F v = S::Load(x + done + c * S::kWidth);
        chains[c] = S::Max(v, chains[c]);
        nan |= S::NanMask(v);
      }
    }
    max = S::Max(S::Max(chains[0], chains[1]), S::Max(chains[2], chains[3]));
  }
  for (int64_t i = done; i < count; i += S::kWidth) {
    typename S::F v = LoadUpTo<S>(x + i, count - i, kMinusInfinity);
    max = S::Max(v, max);
    nan |= S::NanMask(v);
  }
  float value = S::MaxLanes(max);
  RowMax found{0, value, nan != 0};
  typename S::F wanted = S::Set(value);
  for (int64_t i = 0; i < count; i += S::kWidth) {
    int64_t left = count - i;
    // The fill of a part must not be found: NaN equals nothing.
    typename S::F v = LoadUpTo<S>(x + i, left, __builtin_nanf(""));
    uint32_t equal = S::EqualMask(v, wanted);
    if (equal != 0) {
      found.index = i + __builtin_ctz(equal);
      break;
    }
  }
  return found;
}

struct HalfF16 {
  template <typename S>
  static typename S::F Load(const uint16_t* p) {
    return S::LoadF16(p);
  }
  template <typename S>
  static void Store(uint16_t* p, typename S::F x) {
    S::StoreF16(p, x);
  }
  static float LoadOne(uint16_t half) { return F32FromF16(half); }
  static uint16_t StoreOne(float x) { return F16FromF32(x); }
};

struct HalfBf16 {
  template <typename S>
  static typename S::F Load(const uint16_t* p) {
    return S::LoadBf16(p);
  }
  template <typename S>
  static void Store(uint16_t* p, typename S::F x) {
    S::StoreBf16(p, x);
  }
  static float LoadOne(uint16_t half) { return F32FromBf16(half); }
  static uint16_t StoreOne(float x) { return Bf16FromF32(x); }
};

template <typename S, typename Half>
void ToHalf(MatrixView<const float> x, MatrixView<uint16_t> out) {
  QUIRE_CHECK(x.rows == out.rows && x.cols == out.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const float* from = x.data + r * x.stride;
    uint16_t* to = out.data + r * out.stride;
    int64_t i = 0;
    for (; i + S::kWidth <= x.cols; i += S::kWidth) {
      Half::template Store<S>(to + i, S::Load(from + i));
    }
    for (; i < x.cols; ++i) to[i] = Half::StoreOne(from[i]);
  }
}

template <typename S, typename Half>
void FromHalf(MatrixView<const uint16_t> x, MatrixView<float> out) {
  QUIRE_CHECK(x.rows == out.rows && x.cols == out.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const uint16_t* from = x.data + r * x.stride;
    float* to = out.data + r * out.stride;
    int64_t i = 0;
    for (; i + S::kWidth <= x.cols; i += S::kWidth) {
      S::Store(to + i, Half::template Load<S>(from + i));
    }
    for (; i < x.cols; ++i) to[i] = Half::LoadOne(from[i]);
  }
}

template <typename S>
constexpr VectorKernels MakeVectorKernels() {
  VectorKernels table{};
  table.rms_norm = RmsNorm<S>;
  table.rms_norm_heads = RmsNormHeads<S>;
  table.rope_halves = Rope<S, RopeHalvesHead<S>>;
  table.rope_adjacent = Rope<S, RopeAdjacentHead<S>>;
  table.silu_mul = Binary<S, SiluMul>;
  table.gelu_tanh_mul = Binary<S, GeluTanhMul>;
  table.softcap = InPlace<S, Softcap>;
  table.add = Add<S>;
  table.scale = InPlace<S, Scale>;
  table.softmax = Softmax<S>;
  table.row_max = FindRowMax<S>;
  table.f32_to_f16 = ToHalf<S, HalfF16>;
  table.f16_to_f32 = FromHalf<S, HalfF16>;
  table.f32_to_bf16 = ToHalf<S, HalfBf16>;
  table.bf16_to_f32 = FromHalf<S, HalfBf16>;
  table.exp = InPlaceAlone<S, ExpOf>;
  table.tanh = InPlaceAlone<S, TanhOf>;
  return table;
}

}  // namespace
}  // namespace quire::kernels
