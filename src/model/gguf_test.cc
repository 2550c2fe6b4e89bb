#include "model/gguf.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/shared_data.h"

namespace quire::model {
namespace {

using ::testing::HasSubstr;

// Builds the bytes of a small GGUF file by hand.
class Bytes {
 public:
  template <typename T>
  Bytes& Put(T value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
    return *this;
  }
  Bytes& Text(std::string_view text) {
    Put<uint64_t>(text.size());
    for (char c : text) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Bytes& Header(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
    return Put<uint32_t>(0x46554747).Put(version).Put(tensors).Put(pairs);
  }
  Bytes& Pair(std::string_view key, GgufType type) {
    return Text(key).Put(static_cast<uint32_t>(type));
  }
  Bytes& Tensor(std::string_view name, std::vector<uint64_t> extents, uint32_t type,
                uint64_t offset) {
    Text(name).Put(static_cast<uint32_t>(extents.size()));
    for (uint64_t extent : extents) Put(extent);
    return Put(type).Put(offset);
  }
  Bytes& Pad(size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    return *this;
  }
  Bytes& Zeros(size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  Result<GgufFile> Parse() const { return GgufFile::Parse(bytes_); }
  std::string ParseError() const {
    Result<GgufFile> file = Parse();
    return file.ok() ? "no error" : file.error().message;
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST(GgufTest, ReadsEveryWidthOfIntegerAndBothFloats) {
  Bytes bytes;
  bytes.Header(0, 10, 2);
  bytes.Pair("u8", GgufType::kU8).Put<uint8_t>(200);
  bytes.Pair("i8", GgufType::kI8).Put<int8_t>(-3);
  bytes.Pair("u16", GgufType::kU16).Put<uint16_t>(60000);
  bytes.Pair("i32", GgufType::kI32).Put<int32_t>(-70000);
  bytes.Pair("u64", GgufType::kU64).Put<uint64_t>(~uint64_t{0});
  bytes.Pair("i64", GgufType::kI64).Put<int64_t>(-5);
  bytes.Pair("f32", GgufType::kF32).Put<float>(0.5f);
  bytes.Pair("f64", GgufType::kF64).Put<double>(0.25);
  bytes.Pair("bool", GgufType::kBool).Put<uint8_t>(1);
  bytes.Pair("text", GgufType::kString).Text("hello");
  Result<GgufFile> file = bytes.Parse();
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->GetInt("u8"), 200);
  EXPECT_EQ(file->GetInt("i8"), -3);
  EXPECT_EQ(file->GetInt("u16"), 60000);
  EXPECT_EQ(file->GetInt("i32"), -70000);
  EXPECT_EQ(file->GetInt("u64"), std::nullopt);  // does not fit
  EXPECT_EQ(file->GetInt("i64"), -5);
  EXPECT_EQ(file->GetInt("f32"), std::nullopt);
  EXPECT_EQ(file->GetFloat("f32"), 0.5);
  EXPECT_EQ(file->GetFloat("f64"), 0.25);
  EXPECT_EQ(file->GetFloat("u8"), 200.0);
  EXPECT_EQ(file->GetBool("bool"), true);
  EXPECT_EQ(file->GetString("text"), "hello");
  EXPECT_EQ(file->GetString("u8"), std::nullopt);
  EXPECT_EQ(file->GetInt("text"), std::nullopt);
  EXPECT_EQ(file->GetInt("absent"), std::nullopt);
}

TEST(GgufTest, ReadsArrays) {
  Bytes bytes;
  bytes.Header(0, 3);
  bytes.Pair("words", GgufType::kArray).Put(uint32_t{8}).Put(uint64_t{3});
  bytes.Text("a").Text("").Text("ccc");
  bytes.Pair("ints", GgufType::kArray).Put(uint32_t{3}).Put(uint64_t{2});
  bytes.Put<int16_t>(-1).Put<int16_t>(7);
  bytes.Pair("floats", GgufType::kArray).Put(uint32_t{6}).Put(uint64_t{1}).Put(2.5f);
  Result<GgufFile> file = bytes.Parse();
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_THAT(file->GetStringArray("words").value(), ::testing::ElementsAre("a", "", "ccc"));
  EXPECT_THAT(file->GetIntArray("ints").value(), ::testing::ElementsAre(-1, 7));
  EXPECT_THAT(file->GetFloatArray("ints").value(), ::testing::ElementsAre(-1.0f, 7.0f));
  EXPECT_THAT(file->GetFloatArray("floats").value(), ::testing::ElementsAre(2.5f));
  EXPECT_EQ(file->GetInt("ints"), std::nullopt);
  EXPECT_EQ(file->GetStringArray("ints"), std::nullopt);
  EXPECT_EQ(file->GetIntArray("floats"), std::nullopt);
}

TEST(GgufTest, FindsTensorsAtTheirOffsets) {
  Bytes bytes;
  bytes.Header(2, 0).Tensor("a", {32, 3}, 8, 0).Tensor("b", {5}, 0, 128);
  bytes.Pad(32).Zeros(128).Put(1.0f).Put(2.0f).Put(3.0f).Put(4.0f).Put(5.0f);
  Result<GgufFile> file = bytes.Parse();
  ASSERT_TRUE(file.ok()) << file.error().message;
  Result<StoredTensor> a = file->Tensor("a");
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a->type, DType::kQ8_0);
  EXPECT_EQ(a->rows, 3);
  EXPECT_EQ(a->cols, 32);
  Result<StoredTensor> b = file->Tensor("b");
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(b->rows, 1);
  EXPECT_EQ(b->cols, 5);
  EXPECT_EQ(reinterpret_cast<const float*>(b->data)[4], 5.0f);
  EXPECT_EQ(file->Tensor("c").error().kind, ErrorKind::kNotFound);
}

TEST(GgufTest, RefusesAnUnknownTensorTypeOnlyWhenAskedForIt) {
  Bytes bytes;
  bytes.Header(1, 0).Tensor("w", {256}, 23, 0).Pad(32).Zeros(136);
  Result<GgufFile> file = bytes.Parse();
  ASSERT_TRUE(file.ok()) << file.error().message;
  Result<StoredTensor> tensor = file->Tensor("w");
  ASSERT_FALSE(tensor.ok());
  EXPECT_EQ(tensor.error().kind, ErrorKind::kUnsupported);
  EXPECT_THAT(tensor.error().message, HasSubstr("IQ4_XS"));
  EXPECT_THAT(tensor.error().message, HasSubstr("Q4_K"));
}

TEST(GgufTest, RefusesWhatIsNoGgufFile) {
  EXPECT_THAT(Bytes().ParseError(), HasSubstr("ends inside its header"));
  EXPECT_THAT(Bytes().Put<uint64_t>(1).ParseError(), HasSubstr("no GGUF file"));
  EXPECT_THAT(Bytes().Header(0, 0, 1).ParseError(), HasSubstr("version 1 found"));
  EXPECT_THAT(Bytes().Header(0, 0, 0x03000000).ParseError(), HasSubstr("big endian"));
  Result<GgufFile> absent = GgufFile::Open("/nonexistent/model.gguf");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().kind, ErrorKind::kNotFound);
}

TEST(GgufTest, RefusesCountsBeyondTheFile) {
  EXPECT_THAT(Bytes().Header(0, uint64_t{1} << 60).ParseError(), HasSubstr("truncated"));
  EXPECT_THAT(Bytes().Header(uint64_t{1} << 60, 0).ParseError(), HasSubstr("truncated"));
  Bytes strings;
  strings.Header(0, 1).Pair("k", GgufType::kArray).Put(uint32_t{8}).Put(uint64_t{1} << 62);
  EXPECT_THAT(strings.ParseError(), HasSubstr("truncated"));
  Bytes numbers;
  numbers.Header(0, 1).Pair("k", GgufType::kArray).Put(uint32_t{10}).Put(uint64_t{1} << 61);
  EXPECT_THAT(numbers.ParseError(), HasSubstr("truncated"));
  Bytes text;
  text.Header(0, 1).Pair("k", GgufType::kString).Put(~uint64_t{0}).Zeros(64);
  EXPECT_THAT(text.ParseError(), HasSubstr("truncated"));
}

TEST(GgufTest, RefusesTensorsThatCannotBe) {
  Bytes overflow;
  overflow.Header(1, 0).Tensor("w", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0).Pad(32);
  EXPECT_THAT(overflow.ParseError(), HasSubstr("impossible extent"));
  Bytes empty;
  empty.Header(1, 0).Tensor("w", {0}, 0, 0).Pad(32);
  EXPECT_THAT(empty.ParseError(), HasSubstr("impossible extent"));
  Bytes beyond;
  beyond.Header(1, 0).Tensor("w", {64}, 0, 0).Pad(32).Zeros(255);
  EXPECT_THAT(beyond.ParseError(), HasSubstr("beyond the file"));
  Bytes huge;  // 2^62 elements of 4 bytes: the bytes do not fit into 64 bits
  huge.Header(1, 0).Tensor("w", {uint64_t{1} << 62}, 0, 0).Pad(32).Zeros(255);
  EXPECT_THAT(huge.ParseError(), HasSubstr("beyond the file"));
  Bytes offset;
  offset.Header(1, 0).Tensor("w", {1}, 0, uint64_t{1} << 40).Pad(32).Zeros(64);
  EXPECT_THAT(offset.ParseError(), HasSubstr("starts at byte"));
  Bytes unaligned;
  unaligned.Header(1, 0).Tensor("w", {1}, 0, 4).Pad(32).Zeros(64);
  EXPECT_THAT(unaligned.ParseError(), HasSubstr("no multiple of 32"));
  Bytes partial_block;
  partial_block.Header(1, 0).Tensor("w", {33}, 8, 0).Pad(32).Zeros(128);
  EXPECT_THAT(partial_block.ParseError(), HasSubstr("no multiple of Q8_0's 32"));
  Bytes overlapping;
  overlapping.Header(2, 0).Tensor("a", {16}, 0, 0).Tensor("b", {16}, 0, 32).Pad(32).Zeros(96);
  EXPECT_THAT(overlapping.ParseError(), HasSubstr("overlap"));
  Bytes twice;
  twice.Header(2, 0).Tensor("a", {8}, 0, 0).Tensor("a", {8}, 0, 32).Pad(32).Zeros(64);
  EXPECT_THAT(twice.ParseError(), HasSubstr("appears twice"));
  Bytes dimensions;
  dimensions.Header(1, 0).Tensor("w", {1, 1, 1, 1, 1}, 0, 0).Pad(32).Zeros(64);
  EXPECT_THAT(dimensions.ParseError(), HasSubstr("5 dimensions"));
}

TEST(GgufTest, RefusesOddMetadata) {
  Bytes twice;
  twice.Header(0, 2).Pair("k", GgufType::kU8).Put<uint8_t>(1);
  twice.Pair("k", GgufType::kU8).Put<uint8_t>(1);
  EXPECT_THAT(twice.ParseError(), HasSubstr("appears twice"));
  Bytes type;
  type.Header(0, 1).Text("k").Put(uint32_t{13}).Zeros(16);
  EXPECT_THAT(type.ParseError(), HasSubstr("value type 13"));
  Bytes nested;
  nested.Header(0, 1).Pair("k", GgufType::kArray).Put(uint32_t{9}).Zeros(64);
  EXPECT_THAT(nested.ParseError(), HasSubstr("array of arrays"));
  Bytes alignment;
  alignment.Header(0, 1).Pair("general.alignment", GgufType::kU32).Put(uint32_t{24});
  EXPECT_THAT(alignment.ParseError(), HasSubstr("power of two"));
}

TEST(GgufTest, OpensEveryPublishedFile) {
  for (const char* folder :
       {"golden", "quants", "models", "demo/target", "demo/draft", "probe", "tokenizers"}) {
    QUIRE_SHARED_DATA_OR_SKIP(path, folder);
    int opened = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() != ".gguf") continue;
      Result<GgufFile> file = GgufFile::Open(entry.path().string());
      ASSERT_TRUE(file.ok()) << file.error().message;
      EXPECT_TRUE(file->GetString("general.architecture").has_value());
      for (const GgufTensor& tensor : file->tensors()) {
        EXPECT_TRUE(file->Tensor(tensor.name).ok()) << tensor.name;
      }
      ++opened;
    }
    EXPECT_GT(opened, 0) << folder;
  }
}

TEST(GgufTest, ReadsALargeVocabulary) {
  QUIRE_SHARED_DATA_OR_SKIP(path, "tokenizers/ggml-vocab-qwen2.gguf");
  Result<GgufFile> file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::optional<std::vector<std::string_view>> tokens =
      file->GetStringArray("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->size(), 151936u);
  EXPECT_EQ((*tokens)[0], "!");
}

}  // namespace
}  // namespace quire::model
